// On a phone, a table with long texts or figures shows each row as a block: "column: cell".
// innet.css has the rules; tables of short cells scroll sideways instead.
const LONG = 24; // characters that wrap in a narrow column

for (const table of document.querySelectorAll(".md-typeset table:not([class])")) {
  const heads = [...table.querySelectorAll("thead th")].map(each => each.textContent.trim());
  const cells = [...table.querySelectorAll("tbody td")];
  const long = cells.some(each => each.querySelector("img") || each.textContent.length > LONG);
  if (heads.length < 2 || !long) continue;
  if (heads.length === 2 && !table.querySelector("img")) continue; // two columns fit
  table.dataset.stacked = ""; // Material styles tables without a class only
  for (const cell of cells) {
    if (cell.cellIndex > 0 && heads[cell.cellIndex]) cell.dataset.column = heads[cell.cellIndex];
    if (!cell.textContent.trim() && !cell.querySelector("img")) cell.classList.add("blank");
  }
}
