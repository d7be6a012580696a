"""From what an MCP server answers to what a model can be shown. Pure. Proved by tests/actors/tools/test_mcp_results.py."""

from typing import Any

import msgspec

from ..agent.output import storable
from ..agent.results import remark
from ..agent.tool import ToolResult
from ..conversation.builtin import Diagnostic
from ..models import Content, Image, text
from ..models.images import ImageRefused, checked


def result_of(answer: Any) -> ToolResult:
    """Make the result of a ``CallToolResult``. Structured content goes to the details, and to the model if it is all."""
    remarks: list[Diagnostic] = []
    content = [_block(block, remarks) for block in answer.content]
    structured = None if answer.structured_content is None else storable(answer.structured_content)
    if not content and structured is not None:
        content = [text(msgspec.json.encode(structured).decode())]
    return ToolResult(
        content=content,
        details=None if structured is None else {"structuredContent": structured},
        is_error=answer.is_error,
        diagnostics=remarks,
    )


def _block(block: Any, remarks: list[Diagnostic]) -> Content:
    if block.type == "text":
        return text(block.text)
    if block.type == "image":
        return _picture(block.data, block.mime_type, remarks)
    if block.type == "resource_link":
        return text(f"{block.name}: {block.uri}")
    if block.type == "resource":
        return _resource(block.resource, remarks)
    return text(f"({block.type} of type {getattr(block, 'mime_type', 'unknown')} cannot be shown)")


def _resource(resource: Any, remarks: list[Diagnostic]) -> Content:
    if hasattr(resource, "text"):
        return text(resource.text)
    mime_type = resource.mime_type or "application/octet-stream"
    if mime_type.startswith("image/"):
        return _picture(resource.blob, mime_type, remarks)
    return text(f"({resource.uri} of type {mime_type} cannot be shown)")


def _picture(data: str, mime_type: str, remarks: list[Diagnostic]) -> Content:
    """Show a picture, or say why not: one that a provider refuses would be refused for ever."""
    try:
        return checked(Image(data=data, mime_type=mime_type))
    except ImageRefused as error:
        remarks.append(remark("image_refused", f"A picture ({mime_type}) cannot be shown: {error}"))
        return text("(picture that cannot be shown)")
