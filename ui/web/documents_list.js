// The list of documents: what is ticked, chosen and clicked becomes an event. Gradio gives
// `element`, `trigger` and `watch`.
element.addEventListener("change", ({ target }) => {
  const id = target.closest("[data-id]")?.dataset.id;
  if (target.name === "all") trigger("pick_all", { on: target.checked });
  else if (target.matches("select")) trigger("read", { id, whole: target.value === "whole" });
  else if (id) trigger("pick", { id, on: target.checked });
  show(); // as it was until the server has it: what is shown is what is asked
});
element.addEventListener("click", ({ target }) => {
  const button = target.closest("button");
  if (!button) return;
  if (button.name === "dismiss") trigger("dismiss", {});
  else trigger("drop", { id: button.closest("[data-id]").dataset.id });
});

// A new list is put into the old one's elements, and what the user did to those outlives attributes.
function show() {
  for (const box of element.querySelectorAll("input")) {
    box.checked = box.hasAttribute("checked");
    box.indeterminate = box.hasAttribute("data-some");
  }
  for (const one of element.querySelectorAll("option")) one.selected = one.hasAttribute("selected");
}
watch("value", show);
show();
