/** The line of an experiment, as charts draw it. */
export function Swatch({ colour, dash }: { colour: string; dash: number[] }) {
  return (
    <svg width="18" height="8" aria-hidden>
      <line x1="0" y1="4" x2="18" y2="4" stroke={colour} strokeWidth="3" strokeDasharray={dash.join(" ")} />
    </svg>
  );
}
