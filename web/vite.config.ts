import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import react from "@vitejs/plugin-react";
import { defineConfig, type Plugin } from "vite";

/** SHOAL_CONSOLE_OUT: somewhere else, to try a build without disturbing a server that serves this one. */
const OUT = process.env.SHOAL_CONSOLE_OUT ?? fileURLToPath(new URL("../shoal/server/console", import.meta.url));

/** Writes `name.gz` beside each text file, so that the server compresses nothing while it answers. */
function gzipped(): Plugin {
  return {
    name: "gzipped",
    apply: "build",
    closeBundle() {
      for (const entry of readdirSync(OUT, { recursive: true, withFileTypes: true })) {
        if (!entry.isFile() || !/\.(js|css|html|svg)$/.test(entry.name)) continue;
        const path = join(entry.parentPath, entry.name);
        writeFileSync(`${path}.gz`, gzipSync(readFileSync(path), { level: 9 }));
      }
    },
  };
}

/** `npm run dev` shows the pages with a real server behind them: SHOAL_URL, by default one on port 7373. */
const behind = process.env.SHOAL_URL ?? "http://127.0.0.1:7373";

/** The server refuses requests from pages of other origins; while developing, the page is ours. */
const proxied = {
  target: behind,
  changeOrigin: true,
  configure: (proxy: { on: (event: "proxyReq", listener: (request: Outgoing) => void) => void }) =>
    proxy.on("proxyReq", (request) => {
      if (request.getHeader("origin")) request.setHeader("origin", behind);
    }),
};

type Outgoing = { getHeader: (name: string) => unknown; setHeader: (name: string, value: string) => void };

export default defineConfig({
  base: "/",
  plugins: [react(), gzipped()],
  build: {
    outDir: OUT,
    emptyOutDir: true,
    sourcemap: false,
    assetsInlineLimit: 0,
    reportCompressedSize: false,
    chunkSizeWarningLimit: 1200,
    // What several pages use comes in one file: a browser asks for six things at once, and a page had twenty.
    rolldownOptions: {
      output: {
        codeSplitting: {
          groups: [
            {
              name: "shared",
              test: /node_modules\/(@mantine|@floating-ui|lucide-react|react|clsx)|src\/(look|url|api)\/(?!DataTable|TableRows)/,
              minShareCount: 2,
            },
          ],
        },
      },
    },
  },
  server: { proxy: { "/api": proxied, "/sign-in": proxied } },
  preview: { proxy: { "/api": proxied, "/sign-in": proxied } },
  // A machine that does much else is slow, not wrong.
  test: { include: ["src/**/*.test.ts", "src/**/*.test.tsx"], environment: "node", testTimeout: 120_000 },
} as Parameters<typeof defineConfig>[0]);
