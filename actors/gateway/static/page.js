// The plainest page there can be: it attaches to one conversation, shows its transcript and says something.
// The address is  #token=...&session=...&conversation=...  (the fragment is never sent anywhere).
import { Client } from "./perdure.js";

const given = new URLSearchParams(location.hash.slice(1));
const token = given.get("token") ?? sessionStorage.getItem("perdure.token") ?? "";
sessionStorage.setItem("perdure.token", token);
const session = given.get("session") ?? "main";

const client = new Client({ url: new URL("socket", location.href), token, name: given.get("name") ?? "somebody" });
client.addEventListener("state", () => { document.querySelector("#state").textContent = client.state; });

const { conversation } = await client.command({ type: "open", session });
const at = Number(given.get("conversation") ?? conversation);
client.attach({ session, what: "conversation", conversation: at }, show);

document.querySelector("#say").addEventListener("submit", (event) => {
  event.preventDefault();
  const field = event.target.elements.text;
  client.command({ type: "submit", session, conversation: at, content: field.value, whenBusy: "steer" });
  field.value = "";
});

function show(view) {
  const said = view.entries.flatMap((entry) => (entry.model ?? []).map((message) => [entry, message]));
  const live = view.docs["pi.live"]?.generation?.message;
  const shown = live ? [...said, [{}, live]] : said;
  document.querySelector("#transcript").replaceChildren(...shown.map(line));
}

function line([entry, message]) {
  const item = document.createElement("li");
  item.textContent = `${entry.data?.author ?? message.role}: ${text(message.content)}`;
  return item;
}

function text(content) {
  if (typeof content === "string") return content;
  return (content ?? []).map((block) => block.text ?? block.thinking ?? `[${block.type}]`).join("");
}
