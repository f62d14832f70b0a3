// All pages work without this script. It reloads changed parts and loads further rows in place.
"use strict";

const LOOK = 1000; // milliseconds

async function load(address) {
  const answer = await fetch(address, { headers: { Accept: "text/html" } });
  if (!answer.ok) throw Object.assign(new Error(String(answer.status)), { refused: true });
  return answer.text();
}

// Keep the end of each output in sight, unless the user has scrolled up.
function atEnd(output) {
  return output.scrollHeight - output.scrollTop - output.clientHeight < 4;
}

function toEnd(outputs) {
  for (const output of outputs) output.scrollTop = output.scrollHeight;
}

// Do not replace text while the user has selected some of it.
function reads(live) {
  const marked = getSelection();
  return !marked.isCollapsed && live.contains(marked.anchorNode);
}

function watch(live) {
  let shown = "";
  let failed = false;
  async function look() {
    if (document.hidden) return;
    try {
      const html = await load(live.dataset.live);
      failed = false;
      if (html === shown || reads(live)) return;
      shown = html;
      const focused = live.contains(document.activeElement) ? document.activeElement.id : "";
      const places = new Map();
      for (const output of live.querySelectorAll("pre")) {
        if (!atEnd(output)) places.set(output.id, output.scrollTop);
      }
      live.innerHTML = html; // escaped by the server, and the Content-Security-Policy runs no script in it
      for (const output of live.querySelectorAll("pre")) {
        output.scrollTop = places.get(output.id) ?? output.scrollHeight;
      }
      if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
    } catch {
      if (failed && !document.getElementById("gone")) {
        const gone = document.createElement("p");
        gone.id = "gone";
        gone.className = "note failed";
        gone.setAttribute("role", "alert");
        gone.textContent = "ralph-wrap web has stopped: this page does not change any more.";
        live.before(gone);
      }
      failed = true;
    }
  }
  setInterval(look, LOOK);
  document.addEventListener("visibilitychange", look);
}

// Show the branches after they were compared. What the user has selected, typed and focused on the page stays.
// "data-stale" is "empty" if there are no rows yet, and "yes" if newer rows will come.
function compare(compared) {
  async function look() {
    const active = document.activeElement;
    if (document.hidden || (compared.contains(active) && active.matches("input[type=search], select"))) return;
    try {
      const page = new DOMParser().parseFromString(await load(location.href), "text/html");
      const newer = page.getElementById("compared");
      if (!newer || newer.dataset.stale === compared.dataset.stale) return;
      const ticked = new Set();
      for (const box of compared.querySelectorAll("input:checked")) ticked.add(box.value);
      const chosen = new Map();
      for (const field of compared.querySelectorAll("select, input[type=search]")) chosen.set(field.name, field.value);
      const focused = compared.contains(document.activeElement) ? document.activeElement.value : null;
      if ("stale" in newer.dataset) {
        compared.dataset.stale = newer.dataset.stale;
      } else {
        delete compared.dataset.stale;
        clearInterval(timer);
      }
      compared.innerHTML = newer.innerHTML; // as above: the server has escaped it
      for (const field of compared.querySelectorAll("select, input[type=search]")) {
        if (chosen.has(field.name)) field.value = chosen.get(field.name);
      }
      for (const box of compared.querySelectorAll("input[type=checkbox]")) {
        box.checked = ticked.has(box.value);
        if (box.value === focused) box.focus({ preventScroll: true });
      }
    } catch (error) {
      // The next look tries again. But without rows, the user must see why there are none.
      if (error.refused && compared.dataset.stale === "empty") location.reload();
    }
  }
  const timer = setInterval(look, LOOK);
}

async function fill(file) {
  const address = file.dataset.part;
  if (!file.open || !address) return;
  delete file.dataset.part;
  const old = file.querySelector(".more");
  old?.setAttribute("aria-busy", "true");
  try {
    const html = await load(address);
    old?.remove();
    file.insertAdjacentHTML("beforeend", html);
  } catch {
    old?.removeAttribute("aria-busy"); // the link in it still works
  }
}

document.addEventListener("toggle", (event) => {
  if (event.target.matches?.("details.file")) fill(event.target);
}, true);

document.addEventListener("click", async (event) => {
  const link = event.target.closest?.("a[data-part]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const paragraph = link.parentElement;
  try {
    const html = await load(link.dataset.part);
    paragraph.insertAdjacentHTML("afterend", html);
    const next = paragraph.nextElementSibling;
    paragraph.remove();
    next?.setAttribute("tabindex", "-1");
    next?.focus({ preventScroll: true });
  } catch {
    location.href = link.href;
  }
});

toEnd(document.querySelectorAll("pre.output"));
const live = document.querySelector("[data-live]");
if (live) watch(live);
const compared = document.querySelector("#compared[data-stale]");
if (compared) compare(compared);
