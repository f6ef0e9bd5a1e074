// Adds the filter, the details and the keys to the page, which is complete without them. Text is inserted as text, never as
// markup.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const matrix = document.querySelector("#matrix table");
const rows = [...matrix.querySelectorAll("tr.row")];
const groups = [...matrix.querySelectorAll("tbody")];
const dialog = document.querySelector("dialog");
const filter = document.getElementById("filter");
const shown = document.getElementById("shown");

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

// Filter and groups

const searched = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));

function narrow() {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  const wanted = document.querySelector("input[name=outcome]:checked").value;
  const narrowed = words.length > 0 || wanted !== "all";
  let count = 0;
  for (const group of groups) {
    const toggle = group.querySelector("tr.group button");
    const open = narrowed || toggle.dataset.open !== "false";
    let any = false;
    for (const row of group.querySelectorAll("tr.row")) {
      const text = searched.get(row);
      const meets = words.every((word) => text.includes(word)) && (wanted === "all" || row.querySelector(wanted));
      if (meets) { any = true; count += 1; }
      row.hidden = !meets || !open;
    }
    group.hidden = narrowed && !any;
    toggle.setAttribute("aria-expanded", String(open));
  }
  shown.textContent = narrowed ? `${count} of ${rows.length} clauses` : `${rows.length} clauses`;
  keepOneStop();
}

filter.addEventListener("input", narrow);
document.querySelectorAll("input[name=outcome]").forEach((choice) => choice.addEventListener("change", narrow));
matrix.addEventListener("click", (event) => {
  const toggle = event.target.closest("tr.group button");
  if (toggle) {
    toggle.dataset.open = String(toggle.getAttribute("aria-expanded") !== "true");
    narrow();
  }
});

// The Tab key reaches one cell; the arrow keys move on from it.

const cellsOf = (row) => [...row.querySelectorAll("td.cell")];
const visibleRows = () => rows.filter((row) => !row.hidden && !row.parentElement.hidden);

function keepOneStop(wanted) {
  const old = matrix.querySelector("td.cell button[tabindex='0']");
  const first = visibleRows().map((row) => row.querySelector("td.cell button")).find(Boolean);
  const next = wanted ?? (old && old.offsetParent ? old : first);
  if (old && old !== next) old.tabIndex = -1;
  if (next) next.tabIndex = 0;
}

matrix.addEventListener("keydown", (event) => {
  const button = event.target.closest("td.cell button");
  const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
  if (!button || !step) return;
  event.preventDefault();
  const table = visibleRows().map(cellsOf);
  const row = button.closest("tr");
  let y = visibleRows().indexOf(row);
  let x = cellsOf(row).indexOf(button.parentElement);
  for (;;) {
    y += step[0];
    x += step[1];
    const cell = table[y]?.[x];
    if (!cell) return;
    const found = cell.querySelector("button");
    if (found) {
      keepOneStop(found);
      found.focus();
      return;
    }
  }
});

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, textarea, dialog");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    filter.focus();
  } else if (event.key === "Escape" && event.target === filter) {
    filter.value = "";
    narrow();
  }
});

// Details

function duration(micros) {
  if (micros < 1000) return `${micros} µs`;
  if (micros < 1e6) return `${(micros / 1e3).toFixed(1)} ms`;
  return `${(micros / 1e6).toFixed(2)} s`;
}

function facts(list) {
  const made = element("dl", "facts-of");
  for (const [name, value] of list) {
    made.append(element("dt", "", name));
    const holder = element("dd");
    holder.append(value);
    made.append(holder);
  }
  return made;
}

function again(command) {
  const made = element("div", "again");
  const copy = element("button", "", "Copy");
  copy.type = "button";
  copy.dataset.copy = command;
  made.append(element("code", "", command), copy);
  return made;
}

function article(entry) {
  const made = element("article");
  const head = element("h3");
  head.append(element("span", `tag ${entry.outcome}`, `${data.marks[entry.outcome]} ${data.words[entry.outcome]}`));
  head.append(element("span", "mono", entry.name), element("span", "", entry.time));
  made.append(head);
  const list = [];
  if (entry.expected) list.push(["expected", element("pre", "", entry.expected)], ["got", element("pre", "", entry.got)]);
  else if (entry.reason) list.push(["reason", element("pre", "", entry.reason)]);
  if (entry.script) list.push(["how to reproduce it", element("pre", "", entry.script)]);
  if (entry.waived) list.push(["waived", document.createTextNode(`until ${entry.waived[1]}: ${entry.waived[0]}`)]);
  list.push(["level", document.createTextNode(entry.level)]);
  if (entry.again) list.push(["again", again(entry.again)]);
  made.append(facts(list));
  return made;
}

function entriesOf(clause, backend) {
  const cases = (data.cases[clause] ?? []).filter((own) => own[0] === backend).map((own) => {
    const [, name, level, outcome, micros, more] = own;
    return { name, level: data.levels[level], outcome: data.outcomes[outcome], time: duration(micros), ...more };
  });
  const found = (data.found[clause] ?? []).filter((own) => own.backend === backend);
  return [...found, ...cases];
}

function show(clause, backend) {
  const about = data.clauses[clause];
  if (!about || !data.backends[backend]) return;
  const body = dialog.querySelector(".body");
  dialog.querySelector("h2").textContent = `${clause} on ${data.backends[backend]}`;
  const sentence = element("blockquote", "", about[1]);
  const method = element("p", "muted");
  method.append("In the documentation of ", element("code", "", about[0]));
  body.replaceChildren(sentence, method, ...entriesOf(clause, backend).map(article));
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
  history.replaceState(null, "", `#${clause}@${encodeURIComponent(data.backends[backend])}`);
}

matrix.addEventListener("click", (event) => {
  const button = event.target.closest("td.cell button");
  if (!button) return;
  keepOneStop(button);
  const row = button.closest("tr");
  show(row.id, cellsOf(row).indexOf(button.parentElement));
});
dialog.addEventListener("click", (event) => {
  if (event.target === dialog || event.target.closest(".close")) dialog.close();
});
dialog.addEventListener("close", () => history.replaceState(null, "", location.pathname + location.search));

document.addEventListener("click", async (event) => {
  const copy = event.target.closest("[data-copy]");
  if (!copy) return;
  try {
    await navigator.clipboard.writeText(copy.dataset.copy);
    copy.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(copy.previousElementSibling);
    copy.textContent = "Selected";
  }
  setTimeout(() => { copy.textContent = "Copy"; }, 2000);
});

// A link to a cell

function follow() {
  const [clause, name] = location.hash.slice(1).split("@");
  if (name !== undefined) {
    try {
      show(clause, data.backends.indexOf(decodeURIComponent(name)));
    } catch {
      // Not a link to a cell.
    }
  }
}
addEventListener("hashchange", follow);
narrow();
follow();
