import "./look/mantine";
import "./look/look.css";
import { localStorageColorSchemeManager, MantineProvider } from "@mantine/core";
import { Notifications } from "@mantine/notifications";
import { QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { queries } from "./api/queries";
import { theme, variables } from "./look/theme";
import { showUtc } from "./look/times";
import { router } from "./routes";
import { remembered } from "./url/remembered";

showUtc(remembered("utc", false));

// A part of the console that cannot be loaded: the server has a newer one, or the network changed. The page begins anew.
window.addEventListener("vite:preloadError", () => {
  const last = Number(sessionStorage.getItem("shoal.reloaded") ?? 0);
  if (Date.now() - last < 10_000) return;
  sessionStorage.setItem("shoal.reloaded", String(Date.now()));
  location.reload();
});

const schemes = localStorageColorSchemeManager({ key: "shoal.theme" });

createRoot(document.getElementById("root")!).render(
  <StrictMode>
    <MantineProvider
      theme={theme}
      cssVariablesResolver={variables}
      defaultColorScheme="auto"
      colorSchemeManager={schemes}
    >
      <QueryClientProvider client={queries}>
        <Notifications position="bottom-right" limit={4} />
        <RouterProvider router={router} />
      </QueryClientProvider>
    </MantineProvider>
  </StrictMode>,
);
