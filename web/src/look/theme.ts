/** Mantine's theme: dense, system fonts, four hues. Sizes and colours that CSS needs are variables of look.css. */

import { type CSSVariablesResolver, createTheme, type MantineColorsTuple } from "@mantine/core";
import { HUE } from "./colours";

const blue: MantineColorsTuple = [
  "#e9f3fb", "#d3e6f6", "#a6cdec", "#78b4e4", "#4aa3ea", "#1f76bd", "#0b5fa5", "#0a5492", "#08477c", "#063a66",
]; // biome-ignore format: one line
const green: MantineColorsTuple = [
  "#e6f5f0", "#cbebe1", "#98d7c3", "#64c3a5", "#35b48f", "#129871", "#00785a", "#006a50", "#005a44", "#004a38",
]; // biome-ignore format: one line
const red: MantineColorsTuple = [
  "#fdeee6", "#fbdccc", "#f8b899", "#fb9566", "#ff7a45", "#c94e14", "#b8420a", "#a33a08", "#8a3107", "#722805",
]; // biome-ignore format: one line
const dark: MantineColorsTuple = [
  "#d5d7db", "#b4b7bd", "#9a9da4", "#6b6e75", "#3d4046", "#303339", "#26282d", "#1a1b1e", "#151618", "#101113",
]; // biome-ignore format: one line

/** Small fields; what describes them is not smaller than other small print. */
const INPUT = { size: "xs", descriptionProps: { size: "md" } };

export const theme = createTheme({
  colors: { blue, green, red, dark },
  primaryColor: "blue",
  primaryShade: { light: 6, dark: 5 },
  autoContrast: true,
  fontFamily: "system-ui, sans-serif",
  fontFamilyMonospace: "ui-monospace, 'SF Mono', 'DejaVu Sans Mono', Menlo, Consolas, monospace",
  fontSizes: { xs: "11px", sm: "12px", md: "13px", lg: "15px", xl: "18px" },
  lineHeights: { xs: "1.4", sm: "1.4", md: "1.45", lg: "1.5", xl: "1.5" },
  spacing: { xs: "4px", sm: "8px", md: "16px", lg: "24px", xl: "32px" },
  radius: { xs: "2px", sm: "4px", md: "6px", lg: "8px", xl: "16px" },
  defaultRadius: "sm",
  headings: {
    fontWeight: "600",
    sizes: {
      h1: { fontSize: "18px", lineHeight: "1.3" },
      h2: { fontSize: "15px", lineHeight: "1.35" },
      h3: { fontSize: "13px", lineHeight: "1.4" },
    },
  },
  respectReducedMotion: true,
  cursorType: "pointer",
  components: {
    Button: { defaultProps: { size: "xs" } },
    ActionIcon: { defaultProps: { variant: "subtle", color: "gray", size: "md" } },
    TextInput: { defaultProps: INPUT },
    NumberInput: { defaultProps: INPUT },
    Select: { defaultProps: INPUT },
    MultiSelect: { defaultProps: INPUT },
    Textarea: { defaultProps: INPUT },
    Checkbox: { defaultProps: { size: "xs" } },
    Switch: { defaultProps: { size: "xs" } },
    SegmentedControl: { defaultProps: { size: "xs" } },
    Tooltip: { defaultProps: { openDelay: 300, withArrow: true, multiline: true, maw: 420 } },
    Menu: { defaultProps: { shadow: "md" } },
    Modal: { defaultProps: { closeButtonProps: { "aria-label": "close" } } },
    Table: { defaultProps: { verticalSpacing: 4, horizontalSpacing: "sm" } },
  },
});

/** What Mantine's own variables miss: dimmed text that can be read, hues by theme. */
export const variables: CSSVariablesResolver = () => ({
  variables: {},
  light: {
    "--mantine-color-text": "#1d1f23",
    "--mantine-color-dimmed": "#5f636b",
    "--mantine-color-placeholder": "#6b6f77",
    "--mantine-color-error": HUE.light.red,
    ...hues("light"),
    "--line": "#e3e5e8",
    "--line-strong": "#c9ccd1",
    "--surface": "#f6f7f8",
    "--surface-raised": "#ffffff",
    "--hover": "#f0f3f6",
    "--chosen": "#e3effa",
  },
  dark: {
    "--mantine-color-text": "#d5d7db",
    "--mantine-color-dimmed": "#9a9da4",
    "--mantine-color-placeholder": "#8f929a",
    "--mantine-color-error": HUE.dark.red,
    ...hues("dark"),
    "--line": "#303339",
    "--line-strong": "#4a4d54",
    "--surface": "#212327",
    "--surface-raised": "#26282d",
    "--hover": "#25282d",
    "--chosen": "#1d3347",
  },
});

function hues(scheme: "light" | "dark"): Record<string, string> {
  return Object.fromEntries(Object.entries(HUE[scheme]).map(([hue, value]) => [`--hue-${hue}`, value]));
}
