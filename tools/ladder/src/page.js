"use strict";
const main = document.querySelector("main");
const picture = main.querySelector("svg");
const details = document.getElementById("details");
const boxes = [...document.querySelectorAll("input[type=checkbox]")];
const rows = [...picture.querySelectorAll(".packet, .loss")];
const waits = [...picture.querySelectorAll(".wait")];
const foot = picture.querySelector(".foot");
const lines = [...picture.querySelectorAll(".lifeline")].map(line => [line, +line.getAttribute("y2")]);
const height = +picture.getAttribute("height");
let chosen = null;

// The tooltip would hide what the panel shows.
const texts = new Map();
for (const row of rows) {
  const title = row.querySelector("title");
  texts.set(row, title.textContent);
  title.remove();
  row.addEventListener("mouseenter", () => { if (!chosen) details.textContent = texts.get(row); });
  row.addEventListener("click", () => {
    if (chosen) chosen.classList.remove("chosen");
    chosen = chosen === row ? null : row;
    if (chosen) chosen.classList.add("chosen");
    details.textContent = texts.get(row);
  });
}

// Takes the room of hidden rows out of the picture; on a time axis everything stays where it is.
function arrange() {
  const shown = new Set(boxes.filter(box => box.checked).map(box => box.value));
  const gone = [];
  for (const row of rows) {
    const hidden = !shown.has(row.dataset.flow);
    row.classList.toggle("hidden", hidden);
    if (hidden && main.dataset.collapse === "true") {
      gone.push([+row.dataset.y, +row.dataset.room]);
      gone.push([+row.dataset.arrival, +row.dataset.arrivalRoom]);
    }
  }
  gone.sort((a, b) => a[0] - b[0]);
  const sums = [0];
  for (const [, room] of gone) sums.push(sums[sums.length - 1] + room);
  const up = y => {
    let low = 0, high = gone.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (gone[middle][0] < y) low = middle + 1; else high = middle;
    }
    return sums[low];
  };
  for (const row of rows) {
    const [y, arrival] = [+row.dataset.y, +row.dataset.arrival];
    row.setAttribute("transform", `translate(0 ${-up(y)})`);
    // An arrow's two ends may move differently: that is a shear.
    const wire = row.querySelector(".wire");
    const [x1, x2] = [+wire.dataset.x1, +wire.dataset.x2];
    const shear = (up(y) - up(arrival)) / (x2 - x1);
    wire.setAttribute("transform", `matrix(1 ${shear} 0 1 0 ${-shear * x1})`);
  }
  for (const wait of waits) {
    wait.classList.toggle("hidden", !shown.has(wait.dataset.flow));
    const [y1, y2] = [+wait.dataset.y1, +wait.dataset.y2];
    const path = wait.querySelector("path");
    path.dataset.d = path.dataset.d || path.getAttribute("d");
    path.setAttribute("d", path.dataset.d.replace(`V${y2}`, `V${y2 - up(y2) + up(y1)}`));
    path.setAttribute("transform", `translate(0 ${-up(y1)})`);
    const middle = -(up(y1) + up(y2)) / 2;
    for (const text of wait.querySelectorAll("text")) text.setAttribute("transform", `translate(0 ${middle})`);
  }
  const all = sums[sums.length - 1];
  for (const [line, end] of lines) line.setAttribute("y2", end - all);
  foot.setAttribute("transform", `translate(0 ${-all})`);
  picture.setAttribute("height", height - all);
  picture.setAttribute("viewBox", `0 0 ${picture.getAttribute("width")} ${height - all}`);
}

for (const box of boxes) box.addEventListener("change", arrange);
for (const [id, on] of [["all", true], ["none", false]]) {
  document.getElementById(id).addEventListener("click", () => {
    for (const box of boxes) box.checked = on;
    arrange();
  });
}
