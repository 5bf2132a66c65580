//! Names of load balancers that users request.

/// Returns the name for `LoadBalancerSpec.name`, for a vendor whose names have at most `longest` bytes.
///
/// `digest` identifies the key and is the last part of the names that the driver generates. The digest is appended to a requested name that
/// must be truncated, or that ends like a generated name of another key.
#[must_use]
pub fn wished_name(wish: &str, digest: &str, longest: usize) -> String {
    let last = wish.rsplit_once('-').map(|(_, last)| last);
    let is_digest =
        |word: &str| word.len() == digest.len() && word.bytes().all(|one| one.is_ascii_hexdigit());
    if wish.len() <= longest && last.is_none_or(|last| last == digest || !is_digest(last)) {
        return wish.to_owned();
    }
    let room = longest.saturating_sub(digest.len().saturating_add(1));
    let start: String = wish.chars().take(room).collect();
    format!("{start}-{digest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requested_name_is_used_unless_too_long_or_ambiguous() {
        let (mine, other) = ("0123456789", "abcdef0123");
        let long = |length| "x".repeat(length);
        let rows = [
            ("Shop_web.1", "Shop_web.1".to_owned()),
            ("shop-web", "shop-web".to_owned()),
            ("shop-0123456789", "shop-0123456789".to_owned()),
            ("shop-abcdef01234", "shop-abcdef01234".to_owned()),
            (&format!("shop-{other}"), format!("shop-{other}-{mine}")),
            (&long(63), long(63)),
            (&long(64), format!("{}-{mine}", long(52))),
        ];
        for (wish, wanted) in rows {
            assert_eq!(wished_name(wish, mine, 63), wanted);
        }
    }
}
