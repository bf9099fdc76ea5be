/** What can be done with one chart: another way to show it, its points, a picture. */

import { ActionIcon, Menu } from "@mantine/core";
import {
  ChartLine,
  ChartSpline,
  Download,
  EllipsisVertical,
  Grid3x3,
  Image as ImageIcon,
  Maximize2,
  Minimize2,
  Table2,
} from "lucide-react";
import type { Mode } from "./shown";

interface MenuProps {
  title: string;
  mode: Mode;
  setMode: (mode: Mode) => void;
  asTable: boolean;
  toggleTable: () => void;
  csv: string;
  png: () => void;
  enlarged: boolean;
  enlarge?: () => void;
}

export function ChartMenu({ title, mode, setMode, asTable, toggleTable, csv, png, enlarged, enlarge }: MenuProps) {
  return (
    <>
      {enlarge && (
        <ActionIcon size="sm" aria-label={`${enlarged ? "shrink" : "enlarge"} ${title}`} onClick={enlarge}>
          {enlarged ? <Minimize2 size={13} aria-hidden /> : <Maximize2 size={13} aria-hidden />}
        </ActionIcon>
      )}
      <Menu position="bottom-end">
        <Menu.Target>
          <ActionIcon size="sm" aria-label={`more for ${title}`}>
            <EllipsisVertical size={14} aria-hidden />
          </ActionIcon>
        </Menu.Target>
        <Menu.Dropdown>
          <Menu.Label>Shown as</Menu.Label>
          <Menu.Item
            leftSection={<ChartSpline size={14} />}
            onClick={() => setMode("band")}
            fw={mode === "band" ? 600 : 400}
          >
            Band over ranks
          </Menu.Item>
          <Menu.Item
            leftSection={<ChartLine size={14} />}
            onClick={() => setMode("lines")}
            fw={mode === "lines" ? 600 : 400}
          >
            A line for each rank
          </Menu.Item>
          <Menu.Item
            leftSection={<Grid3x3 size={14} />}
            onClick={() => setMode("heat")}
            fw={mode === "heat" ? 600 : 400}
          >
            Heat map
          </Menu.Item>
          <Menu.Item leftSection={<Table2 size={14} />} onClick={toggleTable} fw={asTable ? 600 : 400}>
            Table
          </Menu.Item>
          <Menu.Divider />
          <Menu.Item
            leftSection={<Download size={14} />}
            component="a"
            href={csv}
            download={`${title.replaceAll("/", "-")}.csv`}
          >
            Every point as CSV
          </Menu.Item>
          <Menu.Item leftSection={<ImageIcon size={14} />} onClick={png} disabled={asTable}>
            Picture as PNG
          </Menu.Item>
        </Menu.Dropdown>
      </Menu>
    </>
  );
}
