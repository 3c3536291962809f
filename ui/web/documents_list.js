// The document list: turns changes and clicks into events. Gradio provides `element`, `trigger` and
// `watch`.
element.addEventListener("change", ({ target }) => {
  const id = target.closest("[data-id]")?.dataset.id;
  if (target.name === "all") trigger("pick_all", { on: target.checked });
  else if (target.matches("select")) trigger("read", { id, whole: target.value === "whole" });
  else if (id) trigger("pick", { id, on: target.checked });
  show(); // undo the change until the server confirms it
});
element.addEventListener("click", ({ target }) => {
  const button = target.closest("button");
  if (!button) return;
  if (button.name === "dismiss") trigger("dismiss", {});
  else trigger("drop", { id: button.closest("[data-id]").dataset.id });
});

// Gradio reuses the elements, whose properties keep what the user did: reset them from attributes.
function show() {
  for (const box of element.querySelectorAll("input")) {
    box.checked = box.hasAttribute("checked");
    box.indeterminate = box.hasAttribute("data-some");
  }
  for (const one of element.querySelectorAll("option")) one.selected = one.hasAttribute("selected");
}
watch("value", show);
show();
