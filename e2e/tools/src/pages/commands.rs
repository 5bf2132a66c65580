//! The commands that a page asks its reader to run, and whether a test runs each of them.
//!
//! An HTML comment on the line above a block of commands is the declaration of the block. Readers do not see the comment:
//!
//! - `<!-- run -->`, `<!-- run: STAGE -->`: tests run the commands in the environment of that name;
//! - `<!-- tested: FILE::TEST -->`: that test covers the same commands;
//! - `<!-- not run: WHY -->`: no test can run them.

use super::fences::{Fence, fences};

const LANGUAGES: [&str; 4] = ["console", "sh", "bash", "shell"];
const PROMPT: &str = "$ ";
/// The placeholder for words that contain a digit.
const FIGURE: &str = "#";

/// A block of commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block<'a> {
    /// The line number of its fence, from 1.
    pub line: usize,
    /// The declaration above the block; `None` if it is missing or malformed.
    pub how: Option<How<'a>>,
    /// The lines of the block, without the fence's indentation.
    pub body: Vec<&'a str>,
    prompts: bool,
}

/// The environments for commands that need more than a terminal. The empty name is the default environment. Source: e2e/src/docs.rs and its
/// callers.
pub const STAGES: [&str; 5] = ["", "installed", "demo", "simcloud", "cluster"];

/// The declaration of a block of commands: whether and how the block is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How<'a> {
    /// A test runs the block in this environment. The empty name is the default environment.
    Run(&'a str),
    /// This test covers the same commands as the block.
    Tested(&'a str),
    /// No test runs the block, for this reason.
    NotRun(&'a str),
}

/// A command and its expected output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command<'a> {
    /// The input; it has several lines if the command is continued.
    pub text: String,
    /// The output that the page shows below the command.
    pub output: Vec<&'a str>,
}

/// All blocks of commands of a page.
#[must_use]
pub fn blocks(page: &str) -> Vec<Block<'_>> {
    let block = |Fence { line, language, above, body }| {
        let prompts = language == "console";
        LANGUAGES.contains(&language.as_str()).then(|| Block { line, how: how(above), body, prompts })
    };
    fences(page).into_iter().filter_map(block).collect()
}

fn how(comment: &str) -> Option<How<'_>> {
    let words = comment.trim().strip_prefix("<!--")?.strip_suffix("-->")?.trim();
    let (verb, rest) = words.split_once(':').map_or((words, ""), |(verb, rest)| (verb, rest.trim()));
    match (verb, rest) {
        ("run", stage) => Some(How::Run(stage)),
        ("tested" | "not run", "") => None,
        ("tested", test) => Some(How::Tested(test)),
        ("not run", why) => Some(How::NotRun(why)),
        _ => None,
    }
}

impl<'a> Block<'a> {
    /// Returns the commands. If no line has a prompt, each line is a command or continues the previous one.
    #[must_use]
    pub fn commands(&self) -> Vec<Command<'a>> {
        let prompts = self.prompts && self.body.iter().any(|line| line.starts_with(PROMPT));
        let mut commands: Vec<Command<'a>> = Vec::new();
        // The end marker of a here-document.
        let mut document: Option<String> = None;
        let mut goes_on = false;
        for &line in &self.body {
            let typed = if prompts { line.strip_prefix(PROMPT) } else { Some(line) };
            match (commands.last_mut(), typed) {
                (Some(last), _) if goes_on || document.is_some() => {
                    last.text.push('\n');
                    last.text.push_str(line);
                    if document.as_deref() == Some(line.trim()) {
                        document = None;
                    }
                }
                (_, Some(typed)) if !typed.trim().is_empty() => {
                    commands.push(Command { text: typed.to_owned(), output: Vec::new() });
                    document = end_of_document(typed);
                }
                (Some(last), None) => last.output.push(line),
                (None, _) | (Some(_), Some(_)) => (),
            }
            goes_on = line.ends_with('\\');
        }
        commands
    }
}

/// The end marker of a here-document, after `<<`.
fn end_of_document(line: &str) -> Option<String> {
    let (_, rest) = line.split_once("<<")?;
    let word = rest.split_whitespace().next()?.trim_matches(['\'', '"', '-']);
    (!word.is_empty()).then(|| word.to_owned())
}

/// Returns whether the output `printed` contains the lines that a page shows, in their order. `...` matches any lines, and the amount of
/// white space is ignored.
#[must_use]
pub fn says(printed: &str, shown: &[&str]) -> bool {
    has_lines(printed, shown, words)
}

/// Like [`says`], for output that varies between runs: a word with a digit matches any word with a digit.
#[must_use]
pub fn alike(printed: &str, shown: &[&str]) -> bool {
    has_lines(printed, shown, |line| {
        let word =
            |word: &str| if word.contains(|c: char| c.is_ascii_digit()) { FIGURE } else { word }.to_owned();
        line.split_whitespace().map(word).collect::<Vec<_>>().join(" ")
    })
}

fn has_lines(printed: &str, shown: &[&str], read: impl Fn(&str) -> String) -> bool {
    let mut printed = printed.lines().map(&read);
    shown.iter().filter(|line| !["", "..."].contains(&line.trim())).all(|line| {
        let wanted = read(line);
        printed.any(|line| has_pieces(&line, &wanted))
    })
}

fn words(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn has_pieces(line: &str, wanted: &str) -> bool {
    let mut rest = line;
    wanted.split("...").map(str::trim).all(|piece| match rest.split_once(piece) {
        Some((_, after)) => {
            rest = after;
            true
        }
        None => false,
    })
}

#[cfg(test)]
mod tests {
    use super::{How, alike, blocks, says};

    fn texts(page: &str) -> Vec<Vec<String>> {
        let commands = |block: &super::Block<'_>| block.commands().into_iter().map(|it| it.text).collect();
        blocks(page).iter().map(commands).collect()
    }

    #[test]
    fn comment_above_a_block_declares_whether_it_is_run() {
        let page = "<!-- run -->\n```sh\na\n```\n<!-- run: demo -->\n```console\n$ a\n```\n<!-- tested: f::t -->\n```sh\n```\n\
                    <!-- not run: no cloud -->\n```sh\n```\n<!-- not run -->\n```sh\n```\n```sh\n```\n```yaml\n```\n";
        let hows: Vec<_> = blocks(page).iter().map(|block| (block.line, block.how)).collect();
        let expected = [
            (2, Some(How::Run(""))),
            (6, Some(How::Run("demo"))),
            (10, Some(How::Tested("f::t"))),
            (13, Some(How::NotRun("no cloud"))),
            (16, None),
            (18, None),
        ];
        assert_eq!(hows, expected);
    }

    #[test]
    fn commands_span_lines_and_here_documents() {
        let page = "- x\n\n  ```console\n  $ a \\\n      b\n  out\n  $ c <<'END'\n  d\n  END\n  more\n  ```\n```sh\ne\nf\n```\n";
        assert_eq!(texts(page), [vec!["a \\\n    b", "c <<'END'\nd\nEND"], vec!["e", "f"]]);
        let blocks = blocks(page);
        let outputs: Vec<_> = blocks.iter().flat_map(super::Block::commands).map(|it| it.output).collect();
        assert_eq!(outputs, [vec!["out"], vec!["more"], vec![], vec![]]);
    }

    #[test]
    fn shown_lines_must_be_printed_in_order() {
        let printed = "NAME   AGE\nweb    3s\nmail   4s\n";
        assert!(says(printed, &["NAME AGE", "...", "mail   ...s"]));
        assert!(!says(printed, &["mail ...", "web ..."]), "another order");
        assert!(!says(printed, &["web 4s"]));
    }
    #[test]
    fn transcript_matches_output_with_other_digits() {
        let printed = "POD         AGE  STATE\n10.0.0.1:80  3s   held\n";
        assert!(alike(printed, &["POD AGE STATE", "192.0.2.2:20025  1.9s  held"]));
        assert!(alike(printed, &["... 7s held"]));
        assert!(!alike(printed, &["192.0.2.2:20025  1.9s  free"]), "another word");
        assert!(!alike(printed, &["192.0.2.2:20025  1.9s  4s  held"]), "an additional word");
    }
}
