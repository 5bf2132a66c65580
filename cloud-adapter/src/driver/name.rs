//! The names that users wish for.

/// The name of a load balancer as `LoadBalancerSpec.name` wishes for it, at a vendor whose names have at most `longest` bytes.
///
/// `digest` is the last word of the names that the driver makes itself, which tells the key. A wish that is too long is cut and ends with
/// it, too; and so does one that ends as if it were another key's.
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
    fn a_wish_is_fulfilled_to_the_letter_unless_it_is_too_long_or_another_s() {
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
