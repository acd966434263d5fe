"use strict";
// Everything can be read without this script. It replaces the content when the store has changed.
(() => {
  const live = document.getElementById("live");
  const state = document.getElementById("live-state");
  if (!live || !state || !window.EventSource) return;
  const PAUSE_MS = 2000; // between two updates, however often the store changes
  let busy = false;
  let again = false;

  // A box that was ticked, a reason half written: nothing that a person entered is taken away.
  const isChanged = (field) =>
    field.type === "checkbox" || field.type === "radio"
      ? field.checked !== field.defaultChecked
      : field.options
        ? field.selectedIndex !== Math.max(0, [...field.options].findIndex((option) => option.defaultSelected))
        : field.value !== field.defaultValue;

  const isInUse = () => {
    if ([...live.querySelectorAll("input, select, textarea")].some(isChanged)) return true;
    const selection = document.getSelection();
    const isSelected = selection && !selection.isCollapsed && live.contains(selection.anchorNode);
    return isSelected || live.contains(document.activeElement);
  };

  const update = async () => {
    if (isInUse()) {
      state.textContent = "There is something new: reload this page to see it.";
      return;
    }
    if (busy) {
      again = true;
      return;
    }
    busy = true;
    try {
      const answer = await fetch(location.href);
      if (answer.redirected || answer.status === 401) {
        state.textContent = "Your session is over: reload this page to sign in.";
        return;
      }
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const content = page.getElementById("live");
      if (content && !isInUse()) {
        for (const { id } of live.querySelectorAll("details[open][id]")) content.querySelector(`#${CSS.escape(id)}`)?.setAttribute("open", "");
        live.replaceChildren(...content.childNodes);
      }
      state.textContent = `Updated at ${new Date().toISOString().slice(11, 19)}Z.`;
    } catch {
      state.textContent = "The console does not answer.";
    } finally {
      setTimeout(() => {
        busy = false;
        if (again) {
          again = false;
          update();
        }
      }, PAUSE_MS);
    }
  };

  const events = new EventSource("/events");
  events.addEventListener("open", () => (state.textContent = "Kept up to date while you look."));
  events.addEventListener("changed", update);
  events.addEventListener("error", () => {
    state.textContent = "Not kept up to date now: reload this page to see what is new.";
  });
})();
