//! Formats the page of all flags. Pure functions.

use super::help::{Flag, Help};

const HEAD: &str = "# Flags

<!-- Written by `cargo xtask reference` from the output of each program's `--help`: change that. -->

The flags below *All controllers* or *All adapters* are common to all of them, and are not repeated in their sections. Durations are
written as `1h30m`, `5s` or `200ms`. `--help` of a program shows the same with examples; `--version` prints its version. The chart sets the required flags;
set others in `extraArgs` of its Deployment.
";

/// Programs with common flags.
#[derive(Debug)]
pub(super) struct Family {
    /// The heading for the common flags. It is empty if the programs have no common flags.
    pub(super) name: &'static str,
    pub(super) programs: Vec<Program>,
}

#[derive(Debug)]
pub(super) struct Program {
    pub(super) name: String,
    pub(super) help: Help,
}

pub(super) fn page(families: &[Family]) -> String {
    let mut page = HEAD.to_owned();
    for family in families {
        let shared = |flag: &Flag| {
            !family.name.is_empty() && family.programs.iter().all(|program| all(program).any(|it| it == flag))
        };
        if let Some(first) = family.programs.first().filter(|_| !family.name.is_empty()) {
            page.push_str(&format!("\n## {}\n", family.name));
            page.push_str(&tables(first, shared));
        }
        for program in &family.programs {
            page.push_str(&format!("\n## {}\n", program.name));
            for paragraph in &program.help.about {
                page.push_str(&format!("\n{}\n", text(paragraph)));
            }
            page.push_str(&tables(program, |flag| !shared(flag)));
        }
    }
    page
}

fn all(program: &Program) -> impl Iterator<Item = &Flag> {
    program.help.groups.iter().flat_map(|(_, flags)| flags)
}

/// Returns one table for each heading that has matching flags.
fn tables(program: &Program, shown: impl Fn(&Flag) -> bool) -> String {
    let mut tables = String::new();
    for (heading, flags) in &program.help.groups {
        let rows: String = flags.iter().filter(|flag| shown(flag)).map(row).collect();
        if !rows.is_empty() {
            tables.push_str(&format!("\n**{heading}**\n\n| flag | default | |\n| --- | --- | --- |\n{rows}"));
        }
    }
    tables
}

fn row(flag: &Flag) -> String {
    let default =
        flag.default.as_ref().map(|value| format!("`{}`", value.replace('|', "\\|"))).unwrap_or_default();
    format!("| `{}` | {default} | {} |\n", flag.usage.replace('|', "\\|"), text(&flag.text))
}

/// Escapes text for Markdown. Code spans stay, and other text cannot become a tag, emphasis or the end of a cell.
fn text(words: &str) -> String {
    let plain = |part: &str| part.replace('<', "&lt;").replace('*', "\\*");
    let parts = words.split('`').enumerate();
    let parts: Vec<String> =
        parts.map(|(at, part)| if at % 2 == 0 { plain(part) } else { part.to_owned() }).collect();
    parts.join("`").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::super::help::{Flag, Help};
    use super::{Family, Program, page};

    fn program(name: &str, flags: &[(&str, &str)]) -> Program {
        let flag = |&(usage, text): &(&str, &str)| Flag {
            usage: usage.to_owned(),
            text: text.to_owned(),
            default: None,
        };
        let groups = vec![("Work".to_owned(), flags.iter().map(flag).collect())];
        Program { name: name.to_owned(), help: Help { about: vec!["Does <this>.".to_owned()], groups } }
    }

    #[test]
    fn common_flags_are_listed_once() {
        let programs = vec![
            program("a", &[("--x", "1|2"), ("--y", "same")]),
            program("b", &[("--x", "`<3>`"), ("--y", "same")]),
        ];
        let page = page(&[Family { name: "Both", programs }]);
        let (_, tables) = page.split_once("\n## Both").expect("a family");
        let expected = "\n\n**Work**\n\n| flag | default | |\n| --- | --- | --- |\n| `--y` |  | same |\n\
                        \n## a\n\nDoes &lt;this>.\n\n**Work**\n\n| flag | default | |\n| --- | --- | --- |\n| `--x` |  | 1\\|2 |\n\
                        \n## b\n\nDoes &lt;this>.\n\n**Work**\n\n| flag | default | |\n| --- | --- | --- |\n| `--x` |  | `<3>` |\n";
        assert_eq!(tables, expected);
    }
}
