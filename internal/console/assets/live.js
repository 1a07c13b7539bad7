// Keeps the list of names live: asks for the part of the page that changes as soon as the server has something newer, and
// changes what differs, so that the focus and a selection stay where they are.
"use strict";

const search = document.getElementById("search");
const offline = document.getElementById("offline");
let asking = new AbortController();

// patch makes a node like another one. Children with an id are in the same order in both.
function patch(is, next) {
  if (is.isEqualNode(next)) return;
  if (is.nodeName !== next.nodeName || is.id !== next.id) return is.replaceWith(next);
  if (!is.attributes) { is.data = next.data; return; }
  for (const { name } of [...is.attributes]) if (!next.hasAttribute(name)) is.removeAttribute(name);
  for (const { name, value } of next.attributes) if (is.getAttribute(name) !== value) is.setAttribute(name, value);
  const known = new Map([...is.children].filter((c) => c.id).map((c) => [c.id, c]));
  let at = is.firstChild;
  for (const child of [...next.childNodes]) {
    const same = child.id ? known.get(child.id) : at && !at.id && at.nodeName === child.nodeName ? at : null;
    if (!same) { is.insertBefore(child, at); continue; }
    while (at && at !== same) [at] = [at.nextSibling, at.remove()];
    at = same.nextSibling;
    patch(same, child);
  }
  while (at) [at] = [at.nextSibling, at.remove()];
}

// update asks for what is newer than the page, or for the present state of other names, and shows it.
async function update(newer) {
  const address = new URLSearchParams(location.search);
  address.delete("after");
  if (newer) address.set("after", document.getElementById("main").dataset.generation);
  const answer = await fetch("/console/live?" + address, { signal: asking.signal });
  if (answer.status === 401) location.reload();
  if (!answer.ok) throw new Error(answer.statusText);
  const text = await answer.text();
  patch(document.getElementById("main"), new DOMParser().parseFromString(text, "text/html").getElementById("main"));
}

async function live() {
  for (let newer = true; ; ) {
    if (document.hidden) await new Promise((seen) => document.addEventListener("visibilitychange", seen, { once: true }));
    try {
      await update(newer);
      offline.hidden = newer = true;
    } catch (e) {
      if (e.name === "AbortError") { // something else is searched for
        asking = new AbortController();
        newer = false;
        continue;
      }
      offline.hidden = false;
      newer = false; // the server may have begun anew
      await new Promise((over) => setTimeout(over, 1000));
    }
  }
}

let typed;
search.addEventListener("input", () => {
  clearTimeout(typed);
  typed = setTimeout(() => {
    const address = new URL(location);
    for (const name of ["q", "page", "after"]) address.searchParams.delete(name);
    if (search.value.trim()) address.searchParams.set("q", search.value.trim());
    history.replaceState(null, "", address);
    asking.abort();
  }, 200);
});

document.addEventListener("keydown", (e) => {
  if (e.key !== "/" || e.ctrlKey || e.metaKey || e.altKey || e.target.matches("input, button")) return;
  e.preventDefault();
  search.focus();
  search.select();
});

live();
