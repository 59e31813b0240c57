"use strict";
// Before anything is drawn, so that no page flashes in the other theme. Files opened from disk may have no storage.
try {
  const chosen = localStorage.getItem("launchgap-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch { /* as the system has it */ }
