//! Counts causes, so that a page or a command can show many waiting objects in one line.

use std::collections::BTreeMap;

/// The beginning of a cause that is a wait.
const WAITS: &str = "waits ";
/// Maximum number of causes that are shown on a line.
const SHOWN: usize = 5;

/// Counts equal causes, with the most frequent first: `96 wait for the call budget of bucket loadbalancer, 2 × VENDOR_QUOTA`. The details
/// of a wait, which follow a colon, are left out.
pub fn grouped(causes: &[&str]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for cause in causes {
        let cause = if cause.starts_with(WAITS) { cause.split(": ").next().unwrap_or(cause) } else { cause };
        *counts.entry(cause).or_default() += 1;
    }
    let mut counts: Vec<(&str, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let text = |(cause, count): &(&str, usize)| match cause.strip_prefix(WAITS) {
        Some(rest) if *count > 1 => format!("{count} wait {rest}"),
        Some(_) => format!("{count} {cause}"),
        None => format!("{count} × {cause}"),
    };
    let shown: Vec<String> = counts.iter().take(SHOWN).map(text).collect();
    let others: usize = counts.iter().skip(SHOWN).map(|(_, count)| count).sum();
    let others = if others > 0 { format!(", {others} with other causes") } else { String::new() };
    format!("{}{others}", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::grouped;

    #[test]
    fn equal_causes_are_counted() {
        let wait =
            |ahead: u32| format!("waits for the call budget of bucket loadbalancer: {ahead} calls ahead");
        let waits = [wait(1), wait(2)];
        let causes = ["VENDOR_QUOTA", &waits[0], &waits[1], "a: b"];
        assert_eq!(
            grouped(&causes),
            "2 wait for the call budget of bucket loadbalancer, 1 × VENDOR_QUOTA, 1 × a: b"
        );
        assert_eq!(grouped(&causes[1..2]), "1 waits for the call budget of bucket loadbalancer");
        assert_eq!(
            grouped(&["a", "b", "c", "d", "e", "f", "f"]),
            "2 × f, 1 × a, 1 × b, 1 × c, 1 × d, 1 with other causes"
        );
    }
}
