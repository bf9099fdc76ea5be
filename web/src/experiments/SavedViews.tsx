/** Views by name: query, order, columns, pins. They are links, so they can be sent to others. */

import { ActionIcon, Button, Menu, Modal, TextInput } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { Bookmark, Trash2 } from "lucide-react";
import { useState } from "react";
import { useRemembered } from "../url/remembered";
import { type Search, stringifySearch } from "../url/search";

interface Saved {
  name: string;
  search: Search;
}

const BUILT_IN: Saved[] = [
  { name: "All", search: {} },
  { name: "Running and waiting", search: { q: "state:queued|starting|running|restarting" } },
  { name: "Failed", search: { q: "state:failed" } },
  { name: "Last day", search: { q: "created:>-1d" } },
];

export function SavedViews() {
  const search = useSearch({ strict: false }) as Search;
  const navigate = useNavigate();
  const [saved, setSaved] = useRemembered<Saved[]>("views", []);
  const [naming, modal] = useDisclosure(false);
  const [name, setName] = useState("");
  const here = stringifySearch(search);
  const current = [...saved, ...BUILT_IN].find((view) => stringifySearch(view.search) === here);
  const open = (view: Saved) => void navigate({ to: "/experiments", search: view.search as never });
  const save = () => {
    setSaved([...saved.filter((view) => view.name !== name.trim()), { name: name.trim(), search }]);
    modal.close();
  };

  return (
    <>
      <Menu position="bottom-end" width={240}>
        <Menu.Target>
          <Button variant="default" leftSection={<Bookmark size={14} aria-hidden />}>
            {current?.name ?? "Views"}
          </Button>
        </Menu.Target>
        <Menu.Dropdown>
          {BUILT_IN.map((view) => (
            <Menu.Item key={view.name} onClick={() => open(view)}>
              {view.name}
            </Menu.Item>
          ))}
          {saved.length > 0 && <Menu.Divider />}
          {saved.map((view) => (
            <Menu.Item
              key={view.name}
              component="div"
              onClick={() => open(view)}
              rightSection={
                <ActionIcon
                  size="xs"
                  aria-label={`forget ${view.name}`}
                  onClick={(event) => {
                    event.stopPropagation();
                    setSaved(saved.filter((one) => one.name !== view.name));
                  }}
                >
                  <Trash2 size={12} aria-hidden />
                </ActionIcon>
              }
            >
              {view.name}
            </Menu.Item>
          ))}
          <Menu.Divider />
          <Menu.Item onClick={modal.open}>Save this view …</Menu.Item>
        </Menu.Dropdown>
      </Menu>
      <Modal opened={naming} onClose={modal.close} title="Save this view" size="sm">
        <form
          onSubmit={(event) => {
            event.preventDefault();
            if (name.trim()) save();
          }}
        >
          <TextInput
            label="Name"
            description="Query, order, columns and pins; kept in this browser. The address of the page is the view, too: send it to share it."
            value={name}
            data-autofocus
            onChange={(event) => setName(event.currentTarget.value)}
          />
          <Button type="submit" mt="md" disabled={!name.trim()}>
            Save
          </Button>
        </form>
      </Modal>
    </>
  );
}
