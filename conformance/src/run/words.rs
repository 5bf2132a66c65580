//! Validates the words of `--include` and `--skip`.

use super::RunError;
use crate::check::Check;

/// Refuses a word that matches no check and no family, with a suggestion.
pub(super) fn known(all: &[Check], flag: &'static str, words: &[String]) -> Result<(), RunError> {
    let is_known = |word: &str| {
        all.iter().any(|one| one.id.eq_ignore_ascii_case(word) || one.family().eq_ignore_ascii_case(word))
    };
    match words.iter().find(|word| !is_known(word)) {
        None => Ok(()),
        Some(word) => Err(RunError::Unknown { flag, word: word.clone(), hint: hint(all, word) }),
    }
}

/// Suggests, in this order: the check with that number, if only zeros are missing; the checks of a named family; a family with a similar
/// name; all families.
fn hint(all: &[Check], word: &str) -> String {
    let upper = word.to_uppercase();
    let (family, number) = upper.split_once('-').unwrap_or((&upper, ""));
    let same = |check: &&Check| {
        let own = check.id.split_once('-').and_then(|(_family, own)| own.parse::<u32>().ok());
        check.family() == family && own.is_some() && own == number.parse().ok()
    };
    if let Some(check) = all.iter().find(same) {
        return format!(", did you mean '{}'?", check.id);
    }
    let mut of_family = all.iter().filter(|check| check.family() == family).map(|check| check.id);
    if let Some(first) = of_family.next() {
        let last = of_family.next_back().unwrap_or(first);
        return format!(": use {first} to {last}");
    }
    let mut families: Vec<&str> = all.iter().map(Check::family).collect();
    families.dedup();
    telemetry::hint(family, families)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks;

    #[test]
    fn unknown_word_gets_a_suggestion() {
        for (word, reported) in [
            ("LB-1", ", did you mean 'LB-01'?"),
            ("lb-7", ", did you mean 'LB-07'?"),
            ("LB-001", ", did you mean 'LB-01'?"),
            ("LB-99", ": use LB-01 to LB-26"),
            ("LB-", ": use LB-01 to LB-26"),
            ("SECC-01", ", did you mean 'SEC'? Use one of: ID, ERR, INS, LB, RT, BUD, FLT, SEC, LIF"),
            ("INSS", ", did you mean 'INS'? Use one of: ID, ERR, INS, LB, RT, BUD, FLT, SEC, LIF"),
            ("XX", ": use one of: ID, ERR, INS, LB, RT, BUD, FLT, SEC, LIF"),
            ("", ": use one of: ID, ERR, INS, LB, RT, BUD, FLT, SEC, LIF"),
        ] {
            assert_eq!(hint(&checks::all(), word), reported, "{word}");
        }
    }
}
