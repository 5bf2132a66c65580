//! Suggests known words that the user may have meant, for error messages.

/// The similarity above which a word is suggested; clap uses the same value.
const SIMILAR: f64 = 0.7;
/// The largest number of known words that a message lists.
const LISTED: usize = 12;

/// Returns the known word that is most similar to `word`, or `None` if no known word is similar enough. Upper and lower case count as
/// equal.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    similar(word, known).into_iter().next()
}

/// Returns the part of an error message behind `unknown <thing> 'x'`: `, did you mean 'y'? Use one of: y, z`. A long list of known words is
/// left out.
pub fn hint<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let is_short = (1..=LISTED).contains(&known.len());
    let listed =
        |begin: &str| if is_short { format!("{begin} one of: {}", known.join(", ")) } else { String::new() };
    match nearest(word, known.iter().copied()) {
        Some(near) => format!(", did you mean '{near}'?{}", listed(" Use")),
        None => listed(": use"),
    }
}

/// Returns the known words that are similar to `word`, with the most similar first.
pub fn similar<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let word = word.to_ascii_lowercase();
    let rated = known.into_iter().map(|known| (strsim::jaro(&known.to_ascii_lowercase(), &word), known));
    let mut similar: Vec<(f64, &str)> = rated.filter(|(similarity, _)| *similarity > SIMILAR).collect();
    similar.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    similar.into_iter().map(|(_, known)| known).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_similar_word_is_suggested() {
        let known = ["compute", "network", "loadbalancer", "identity"];
        for (word, meant) in
            [("comptue", Some("compute")), ("Networks", Some("network")), ("storage", None), ("", None)]
        {
            assert_eq!(nearest(word, known), meant, "{word}");
        }
        let all = "Use one of: compute, network, loadbalancer, identity";
        assert_eq!(hint("comptue", known), format!(", did you mean 'compute'? {all}"));
        assert_eq!(hint("storage", known), format!(": {}", all.replace("Use", "use")));
        let many: Vec<String> = (10..30).map(|n| format!("key-{n}")).collect();
        assert_eq!(hint("key10", many.iter().map(String::as_str)), ", did you mean 'key-10'?");
        assert_eq!(
            (hint("x", many.iter().map(String::as_str)), hint("x", [])),
            (String::new(), String::new())
        );
        assert_eq!(similar("web", ["shop", "web-2", "web"]), ["web", "web-2"]);
    }
}
