//! The table: a fault, and the checks that it fails.

use std::{fmt, fs, io, path::Path};

/// The adapter without a fault.
pub(crate) const GOOD: &str = "none";
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/broken.table");
/// What its first lines say.
const HEAD: &str = "\
# A mistake of adapter-sim (--break), and the checks that it fails; - stands for none, with the reason as the remark.
# One with a question mark fails by how quick the machine is.
# Each run of the tests tries it against the checks before the bar and some quick ones, and it fails those before the bar alone.
# Those after the bar fail, too: UPDATE_BROKEN_TABLE tries all of the first two tiers, and of the third those before the bar.
";

/// A line of it.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// As `adapter-sim --break` calls it, or [`GOOD`].
    pub(crate) fault: String,
    /// The checks that fail, in order, of those that each run of the tests tries.
    pub(crate) fails: Vec<String>,
    /// The others that fail, in order: they take too long to be tried each time.
    pub(crate) fails_too: Vec<String>,
    /// Checks that may fail, or not.
    pub(crate) may_fail: Vec<String>,
    /// For people.
    pub(crate) remark: String,
}

/// All lines. `#` begins a remark; `-` stands for none; a bar divides what each run tries from the rest.
///
/// # Errors
/// If the file cannot be read.
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

/// Replaces the file.
///
/// # Errors
/// If it cannot be written.
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
