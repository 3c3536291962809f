// An opened part stays open while the list is updated. Gradio provides `element` and `watch`.
const opened = new Set();
element.addEventListener("toggle", ({ target }) => {
  if (target.open) opened.add(target.id);
  else if (!showing) opened.delete(target.id);
}, true);

let showing = false;
function show() {
  showing = true;
  const here = new Set([...element.querySelectorAll("details")].map((one) => one.id));
  for (const id of [...opened]) if (!here.has(id)) opened.delete(id);
  for (const one of element.querySelectorAll("details")) one.open = opened.has(one.id);
  setTimeout(() => { showing = false; }, 0);
}
watch("value", show);
