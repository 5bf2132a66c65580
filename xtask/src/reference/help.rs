//! Parses the output of `--help`, in the format of clap.

/// Maximum indentation of flags; the descriptions of flags have a larger indentation.
const INDENT_MAX: usize = 6;
/// Indentation of a flag's description, and of an entry in a list of values.
const TEXT_INDENT: usize = 10;
const WORD_INDENT: usize = 12;
const DEFAULT: &str = "[default: ";
const VALUES: &str = "Possible values:";
const SHORT_VALUES: &str = "[possible values: ";
const VARIABLE: &str = "[env: ";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Help {
    pub(super) about: Vec<String>,
    pub(super) groups: Vec<(String, Vec<Flag>)>,
}

/// A flag or a positional argument.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Flag {
    /// The flag with its value, such as `--cluster-id <UID>`.
    pub(super) usage: String,
    pub(super) text: String,
    pub(super) default: Option<String>,
}

/// Parses the help. Omits examples, and flags that every program has.
pub(super) fn read(text: &str) -> Help {
    let mut help = Help::default();
    let lines: Vec<&str> = text.lines().collect();
    let usage = lines.iter().position(|line| line.starts_with("Usage:")).unwrap_or(lines.len());
    help.about = paragraphs(lines.iter().take(usage).copied());
    let mut rest = lines.iter().skip(usage).skip(1).copied().peekable();
    let mut heading: Option<String> = None;
    while let Some(line) = rest.next() {
        if let Some(flag) = usage_of(line).filter(|_| heading.is_some()) {
            let (usage, beside) = flag.split_once("  ").unwrap_or((flag, ""));
            let mut said = vec![beside.trim().to_owned()];
            // A description beside its flag continues with a deeper indentation, but has no list.
            let is_beside = !beside.trim().is_empty();
            let mut of_values = false;
            while let Some(more) = rest.next_if(|line| line.trim().is_empty() || indent(line) > INDENT_MAX) {
                of_values = more.trim() == VALUES || (of_values && !more.trim().is_empty());
                said.push(if of_values || is_beside { more.trim().to_owned() } else { entry(more) });
            }
            if !["-h, --help", "-V, --version"].contains(&usage) {
                let group = heading.clone().unwrap_or_default();
                add(&mut help.groups, group, described(usage, &said));
            }
        } else if !line.is_empty() && indent(line) == 0 {
            let next = rest.peek().copied().and_then(usage_of);
            heading = line.strip_suffix(':').filter(|_| next.is_some()).map(str::to_owned);
        }
    }
    help
}

fn add(groups: &mut Vec<(String, Vec<Flag>)>, heading: String, flag: Flag) {
    match groups.iter_mut().find(|(name, _)| *name == heading) {
        Some((_, flags)) => flags.push(flag),
        None => groups.push((heading, vec![flag])),
    }
}

/// Returns the usage of the flag if the flag's entry begins on this line.
fn usage_of(line: &str) -> Option<&str> {
    let text = line.trim_start();
    let begins = text.starts_with('-') || text.starts_with('<') || text.starts_with('[');
    (begins && (1..=INDENT_MAX).contains(&indent(line))).then_some(text)
}

fn indent(line: &str) -> usize {
    line.len().saturating_sub(line.trim_start().len())
}

/// Joins each group of lines between blank ones into one line.
fn paragraphs<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut all = vec![String::new()];
    for line in lines {
        match (line.trim(), all.last_mut()) {
            ("", _) => all.push(String::new()),
            (text, Some(last)) => {
                if !last.is_empty() {
                    last.push(' ');
                }
                last.push_str(text);
            }
            (_, None) => (),
        }
    }
    all.retain(|paragraph| !paragraph.is_empty());
    all
}

/// Adds a line of a flag's description. Deeper indentation marks a list of values with their meanings.
fn entry(line: &str) -> String {
    match (indent(line), line.trim()) {
        (_, "") => String::new(),
        (TEXT_INDENT, text) => text.to_owned(),
        (WORD_INDENT, text) => format!("`{text}`:"),
        (_, text) => format!("{text};"),
    }
}

fn described(usage: &str, said: &[String]) -> Flag {
    // Lists of values are separated from the other text.
    let (values, words): (Vec<String>, Vec<String>) =
        blocks(said).into_iter().partition(|text| text.starts_with(VALUES));
    let mut text = words.join(" ");
    let default = cut(&mut text, DEFAULT);
    let short = cut(&mut text, SHORT_VALUES);
    let variable = cut(&mut text, VARIABLE);
    let mut parts =
        vec![text.split_whitespace().collect::<Vec<_>>().join(" ").trim_end_matches(';').to_owned()];
    parts.extend(values.iter().filter_map(|value| Some(value.strip_prefix(VALUES)?.trim().to_owned())));
    parts.extend(short.map(|words| format!("One of `{}`", words.replace(", ", "`, `"))));
    parts.extend(variable.map(|name| format!("Also from the variable `{}`", name.trim_end_matches('='))));
    parts.retain(|part| !part.is_empty());
    Flag { usage: usage.trim().to_owned(), text: parts.join(". "), default }
}

/// Removes the text from the prefix `words` to the closing bracket, and returns it without the prefix.
fn cut(text: &mut String, words: &str) -> Option<String> {
    let at = text.find(words)?;
    let tail = text.split_off(at);
    let (value, after) = tail.strip_prefix(words)?.split_once(']')?;
    text.push_str(after);
    Some(value.to_owned())
}

/// Joins the lines of each paragraph. A list of values counts as one paragraph, and its entries are joined.
fn blocks(said: &[String]) -> Vec<String> {
    let mut blocks = paragraphs(said.iter().map(String::as_str));
    for block in &mut blocks {
        if block.starts_with(VALUES) {
            let mut entries = block.split(" - ").map(str::trim);
            let head = entries.next().unwrap_or_default().to_owned();
            let entries: Vec<String> = entries
                .map(|entry| match entry.split_once(':') {
                    Some((word, meaning)) => format!("`{word}`: {}", meaning.trim()),
                    None => format!("`{entry}`"),
                })
                .collect();
            *block = format!("{head} {}", entries.join("; "));
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::read;

    const HELP: &str = "Does this\nand that\n\nAnd more.\n\nUsage: x [OPTIONS] --id <UID>\n\nOptions:\n  -h, --help\n          Print help\n\nWork:\n      --id <UID>\n          Who it\n          is\n\n            a:b\n                that one\n          \n          [env: ID=]\n          [default: 10]\n\n      --mode <MODE>\n          How\n\n          Possible values:\n          - auto: By\n            itself\n          - text\n\n  -q, --quiet  Says less\n               than usual\n\nExample:\n  x --id 1\n";

    #[test]
    fn flags_are_read_with_their_heading_text_and_default() {
        let help = read(HELP);
        assert_eq!(help.about, ["Does this and that", "And more."]);
        let flags: Vec<_> = help
            .groups
            .iter()
            .flat_map(|(heading, flags)| {
                flags
                    .iter()
                    .map(move |flag| format!("{heading}/{}/{}/{:?}", flag.usage, flag.text, flag.default))
            })
            .collect();
        let expected = [
            "Work/--id <UID>/Who it is `a:b`: that one. Also from the variable `ID`/Some(\"10\")",
            "Work/--mode <MODE>/How. `auto`: By itself; `text`/None",
            "Work/-q, --quiet/Says less than usual/None",
        ];
        assert_eq!(flags, expected);
    }
}
