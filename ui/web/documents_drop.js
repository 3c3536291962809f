// The drop zone and file picker. Files are uploaded one by one, so that a failed one does not affect
// the others. Gradio provides `element`, `trigger` and `upload`.
const input = element.querySelector("input");
const zone = element.querySelector(".drop");
const told = element.querySelector(".told");
const largest = Number(zone.dataset.largest);
let before = Promise.resolve();

async function send(files) {
  const arrived = [];
  for (const [at, file] of files.entries()) {
    told.textContent = `uploading ${at + 1} of ${files.length}: ${file.name}`;
    try {
      if (file.size > largest) throw new Error(`over ${largest >> 20} MiB; split it`);
      arrived.push({ name: file.name, path: (await upload(file)).path });
    } catch (error) {
      arrived.push({ name: file.name, error: error?.message || "not uploaded; is it a folder?" });
    }
  }
  told.textContent = "";
  trigger("arrived", { files: arrived });
}

function take(found) {
  const files = Array.from(found ?? []);
  if (files.length) before = before.then(() => send(files));
}

input.addEventListener("change", () => {
  take(input.files);
  input.value = "";
});
for (const name of ["dragenter", "dragover"]) {
  zone.addEventListener(name, (event) => {
    event.preventDefault();
    zone.classList.add("over");
  });
}
zone.addEventListener("dragleave", (event) => {
  if (!zone.contains(event.relatedTarget)) zone.classList.remove("over");
});
zone.addEventListener("drop", (event) => {
  event.preventDefault();
  zone.classList.remove("over");
  take(event.dataTransfer?.files);
});
