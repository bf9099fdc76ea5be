/** The query of the list, in the words of `shoal ls -q`: completes fields and values, shows where it is wrong. */

import { ActionIcon, Combobox, Text, TextInput, useCombobox } from "@mantine/core";
import { ListFilter, X } from "lucide-react";
import { type Ref, useEffect, useMemo, useRef, useState } from "react";
import { ApiError } from "../api/client";
import { ErrorBox } from "../look/Notes";
import { completions, located, taken, type Vocabulary } from "./completion";
import classes from "./experiments.module.css";

interface Props {
  query: string;
  onQuery: (query: string) => void;
  words: Vocabulary;
  error: unknown;
  inputRef: Ref<HTMLInputElement>;
}

export function QueryBar({ query, onQuery, words, error, inputRef }: Props) {
  const [text, setText] = useState(query);
  const [cursor, setCursor] = useState(query.length);
  const input = useRef<HTMLInputElement | null>(null);
  const box = useCombobox({ onDropdownClose: () => box.resetSelectedOption() });
  useEffect(() => setText(query), [query]);

  const offered = useMemo(() => completions(text, cursor, words), [text, cursor, words]);
  const wrong = error instanceof ApiError && error.status === 422 ? located(error.body.where, query) : null;

  const moved = () => setCursor(input.current?.selectionStart ?? text.length);
  const apply = () => {
    box.closeDropdown();
    if (text.trim() !== query) onQuery(text.trim());
  };
  const take = (item: string) => {
    const next = taken(text, cursor, offered.from, item);
    setText(next.text);
    setCursor(next.cursor);
    box.resetSelectedOption();
    requestAnimationFrame(() => {
      input.current?.focus();
      input.current?.setSelectionRange(next.cursor, next.cursor);
    });
    if (!item.endsWith(":")) box.closeDropdown();
  };

  return (
    <div className={classes.query}>
      <Combobox store={box} onOptionSubmit={take} width="target" position="bottom-start">
        <Combobox.Target>
          <TextInput
            ref={(node) => {
              input.current = node;
              if (typeof inputRef === "function") inputRef(node);
              else if (inputRef) inputRef.current = node;
            }}
            aria-label="query"
            placeholder="state:failed, params.lr:>0.01, metrics.loss:<0.3"
            spellCheck={false}
            autoComplete="off"
            className={classes.queryInput}
            classNames={{ input: "mono" }}
            leftSection={<ListFilter size={14} aria-hidden />}
            rightSection={
              text && (
                <ActionIcon
                  size="sm"
                  aria-label="clear the query"
                  onClick={() => {
                    setText("");
                    onQuery("");
                  }}
                >
                  <X size={13} aria-hidden />
                </ActionIcon>
              )
            }
            value={text}
            onChange={(event) => {
              setText(event.currentTarget.value);
              setCursor(event.currentTarget.selectionStart ?? event.currentTarget.value.length);
              box.openDropdown();
              box.resetSelectedOption();
            }}
            onSelect={moved}
            onFocus={() => box.openDropdown()}
            onBlur={() => box.closeDropdown()}
            onKeyDown={(event) => {
              if (event.key === "Enter" && box.getSelectedOptionIndex() === -1) {
                event.preventDefault();
                event.stopPropagation();
                apply();
              }
              if (event.key === "Tab" && box.dropdownOpened && text && offered.items.length) {
                event.preventDefault();
                take(offered.items[Math.max(0, box.getSelectedOptionIndex())]!.text);
              }
              if (event.key === "Escape" && !box.dropdownOpened) input.current?.blur();
            }}
          />
        </Combobox.Target>
        <Combobox.Dropdown hidden={offered.items.length === 0}>
          <Combobox.Options mah={320} style={{ overflowY: "auto" }}>
            {offered.items.map((item) => (
              <Combobox.Option key={item.text} value={item.text}>
                <span className={classes.offer}>
                  <span className="mono">{item.text}</span>
                  <span className="dim">{item.note}</span>
                </span>
              </Combobox.Option>
            ))}
          </Combobox.Options>
          <Combobox.Footer>
            <Text size="xs" c="dimmed">
              Tab takes · Enter asks · a comma is "and", | is "or", ~ is "not", % is any text
            </Text>
          </Combobox.Footer>
        </Combobox.Dropdown>
      </Combobox>
      {wrong && (
        <pre className={`mono ${classes.wrong}`} aria-hidden>
          {wrong[0]}
          <mark>{wrong[1]}</mark>
          {wrong[2]}
        </pre>
      )}
      {error instanceof ApiError && error.status === 422 ? <ErrorBox error={error} compact /> : null}
    </div>
  );
}
