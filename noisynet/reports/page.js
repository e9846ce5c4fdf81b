for (const table of document.querySelectorAll("table.sortable")) {
  makeSortable(table, document.getElementById("sorted"));
}
for (const plot of document.querySelectorAll(".plot[data-curves]")) {
  plot.curves = JSON.parse(plot.dataset.curves);
  showValues(plot, document.getElementById("tip"));
}
