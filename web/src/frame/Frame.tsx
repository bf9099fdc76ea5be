/** What surrounds every page: the bar with its places, whether the page is live, the palette, the keys. */

import { ActionIcon, Button, Kbd, Menu, Modal, Table, Tooltip, useMantineColorScheme } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { openSpotlight } from "@mantine/spotlight";
import { useQueryClient } from "@tanstack/react-query";
import { Link, Outlet, useNavigate } from "@tanstack/react-router";
import { Keyboard, Moon, Plus, Search, Settings, Sun, SunMoon } from "lucide-react";
import { Suspense, useEffect } from "react";
import { live, useLive } from "../api/live";
import { followChanges } from "../api/queries";
import { Waiting } from "../look/Notes";
import { clock } from "../look/times";
import classes from "./frame.module.css";
import { activeKeys, type Key, useKeys } from "./keys";
import { Palette } from "./Palette";

const PLACES = [
  { to: "/experiments", name: "Experiments" },
  { to: "/compare", name: "Compare" },
  { to: "/datasets", name: "Data sets" },
  { to: "/models", name: "Models" },
  { to: "/clusters", name: "Clusters" },
] as const;

export function Frame() {
  const client = useQueryClient();
  const navigate = useNavigate();
  const [helping, help] = useDisclosure(false);

  useEffect(() => {
    const ends = [followChanges(client), live.start()];
    return () => {
      for (const end of ends) end();
    };
  }, [client]);

  const keys: Key[] = [
    { keys: "?", does: "these keys", run: help.toggle },
    { keys: "g e", does: "experiments", run: () => void navigate({ to: "/experiments" }) },
    { keys: "g c", does: "clusters", run: () => void navigate({ to: "/clusters" }) },
    { keys: "g n", does: "new experiment", run: () => void navigate({ to: "/create" }) },
  ];
  useKeys(keys);

  return (
    <div className={classes.frame}>
      <a href="#page" className={classes.skip}>
        Skip to the page
      </a>
      <header className={classes.bar}>
        <Link to="/experiments" className={classes.brand} aria-label="Shoal, experiments">
          <Fish /> Shoal
        </Link>
        <nav aria-label="places" className={classes.places}>
          {PLACES.map((place) => (
            <Link key={place.to} to={place.to} className={classes.place} activeProps={{ "data-active": true }}>
              {place.name}
            </Link>
          ))}
        </nav>
        <div className={classes.right}>
          <LiveMark />
          <Button
            variant="default"
            className={classes.search}
            leftSection={<Search size={13} aria-hidden />}
            rightSection={<Kbd size="xs">Ctrl K</Kbd>}
            onClick={openSpotlight}
          >
            <span className={classes.goto}>Go to</span>
          </Button>
          <Button renderRoot={(props) => <Link to="/create" {...props} />} leftSection={<Plus size={14} aria-hidden />}>
            New
          </Button>
          <ThemeMenu />
          <Tooltip label="keys (?)">
            <ActionIcon aria-label="keys" onClick={help.open}>
              <Keyboard size={16} aria-hidden />
            </ActionIcon>
          </Tooltip>
          <Tooltip label="settings">
            <ActionIcon aria-label="settings" renderRoot={(props) => <Link to="/settings" {...props} />}>
              <Settings size={16} aria-hidden />
            </ActionIcon>
          </Tooltip>
        </div>
      </header>
      <main id="page" className={classes.page} tabIndex={-1}>
        <Suspense fallback={<Waiting what="the page" />}>
          <Outlet />
        </Suspense>
      </main>
      <Palette />
      <Modal opened={helping} onClose={help.close} title="Keys" size="md">
        <KeyTable />
      </Modal>
    </div>
  );
}

/** Light, dark, or as the system is. */
export function ThemeMenu() {
  const { colorScheme, setColorScheme } = useMantineColorScheme();
  const Icon = colorScheme === "light" ? Sun : colorScheme === "dark" ? Moon : SunMoon;
  return (
    <Menu position="bottom-end">
      <Menu.Target>
        <ActionIcon aria-label={`theme: ${colorScheme === "auto" ? "system" : colorScheme}`}>
          <Icon size={16} aria-hidden />
        </ActionIcon>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Item leftSection={<Sun size={14} />} onClick={() => setColorScheme("light")}>
          Light
        </Menu.Item>
        <Menu.Item leftSection={<Moon size={14} />} onClick={() => setColorScheme("dark")}>
          Dark
        </Menu.Item>
        <Menu.Item leftSection={<SunMoon size={14} />} onClick={() => setColorScheme("auto")}>
          System
        </Menu.Item>
      </Menu.Dropdown>
    </Menu>
  );
}

const WORDS = {
  live: "live",
  connecting: "connecting …",
  broken: "connection lost, trying again",
  paused: "paused",
} as const;

function LiveMark() {
  const status = useLive();
  return (
    <span className={classes.live} data-status={status} role="status">
      <span className={classes.dot} aria-hidden />
      <span className="clip">
        {status === "broken" && live.lost ? `connection lost, as of ${clock(live.lost / 1000)}` : WORDS[status]}
      </span>
    </span>
  );
}

function KeyTable() {
  return (
    <Table>
      <Table.Tbody>
        <Table.Tr>
          <Table.Td>
            <Kbd>Ctrl</Kbd> <Kbd>K</Kbd>
          </Table.Td>
          <Table.Td>go to any experiment or page</Table.Td>
        </Table.Tr>
        {activeKeys().map((key) => (
          <Table.Tr key={key.keys + key.does}>
            <Table.Td>
              {key.keys.split(" ").map((part) => (
                <Kbd key={part} mr={4}>
                  {part}
                </Kbd>
              ))}
            </Table.Td>
            <Table.Td>{key.does}</Table.Td>
          </Table.Tr>
        ))}
      </Table.Tbody>
    </Table>
  );
}

function Fish() {
  return (
    <svg width="20" height="16" viewBox="0 0 20 16" fill="currentColor" aria-hidden>
      <path d="M1 4.5c3-3.5 6.500-3.500 9 0-2.500 3.500-6 3.500-9 0z" />
      <path d="M9 11c3-3.500 6.500-3.500 9 0-2.500 3.500-6 3.500-9 0z" opacity="0.75" />
      <path d="M2.500 12.500c1.800-2 3.600-2 5 0-1.400 2-3.200 2-5 0z" opacity="0.5" />
    </svg>
  );
}
