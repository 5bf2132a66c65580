//! The table of faults, with the checks that fail for each fault.

use std::{fmt, fs, io, path::Path};

/// The adapter without a fault.
pub(crate) const GOOD: &str = "none";
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/broken.table");
const HEAD: &str = "# A fault of adapter-sim (--break), and the checks that it fails; - means none, with the reason in the comment.
# A check with a question mark may fail or pass, depending on the speed of the host.
# Each test run executes the checks before the bar and some quick ones; exactly those before the bar must fail.
# The checks after the bar fail, too: UPDATE_BROKEN_TABLE executes all of the first two tiers, and of the third those before the bar.
";

#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// The fault's name in `adapter-sim --break`, or [`GOOD`].
    pub(crate) fault: String,
    /// The failing checks that each test run executes, in order.
    pub(crate) fails: Vec<String>,
    /// The other failing checks, in order. They take too long for each test run.
    pub(crate) fails_too: Vec<String>,
    /// Checks that may fail or pass.
    pub(crate) may_fail: Vec<String>,
    pub(crate) remark: String,
}

/// Reads all rows. `#` begins a comment; `-` means no check; a bar separates the checks of each test run from the others.
pub(crate) fn rows() -> io::Result<Vec<Row>> {
    let text = fs::read_to_string(Path::new(FILE))?;
    let row = |line: &str| {
        let (words, remark) = line.split_once('#').unwrap_or((line, ""));
        let (words, rest) = words.split_once('|').unwrap_or((words, ""));
        let mut words = words.split_whitespace().map(str::to_owned);
        let fault = words.next()?;
        let (mut may_fail, fails): (Vec<String>, Vec<String>) =
            words.filter(|word| word != "-").partition(|word| word.ends_with('?'));
        may_fail.iter_mut().for_each(|word| word.truncate(word.len() - 1));
        let fails_too = rest.split_whitespace().map(str::to_owned).collect();
        Some(Row { fault, fails, fails_too, may_fail, remark: remark.trim().to_owned() })
    };
    Ok(text.lines().filter_map(row).collect())
}

pub(crate) fn write(rows: &[Row]) -> io::Result<()> {
    let lines: String = rows.iter().map(|row| format!("{row}\n")).collect();
    fs::write(Path::new(FILE), format!("{HEAD}{lines}"))
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fault, fails, fails_too, may_fail, remark } = self;
        let words = if fails.is_empty() { "-".to_owned() } else { fails.join(" ") };
        write!(f, "{fault:<33}{words}")?;
        may_fail.iter().try_for_each(|id| write!(f, " {id}?"))?;
        if !fails_too.is_empty() {
            write!(f, " | {}", fails_too.join(" "))?;
        }
        if remark.is_empty() { Ok(()) } else { write!(f, "  # {remark}") }
    }
}
