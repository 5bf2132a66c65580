//! Valid and invalid values. Each valid value must be printed as text that parses to the same value.

use proptest::prelude::*;

use super::*;

#[test]
fn durations_need_unit_and_range() {
    for good in ["1s", "90s", "5m", "24h"] {
        assert!(duration(good).is_ok(), "{good}");
    }
    for bad in ["", "s", "5", "0s", "-5s", "+5s", "1.5h", "25h", "5 m", "5d", "99999999999999999999h"] {
        assert!(duration(bad).is_err(), "{bad}");
    }
}

#[test]
fn invalid_values_get_expected_form() {
    let faults = [
        word::<Switch>("yes").unwrap_err(),
        word::<Algorithm>("random").unwrap_err(),
        duration("fast").unwrap_err(),
        connections("0").unwrap_err(),
        probes("101").unwrap_err(),
        port("http").unwrap_err(),
        text(" x").unwrap_err(),
        texts("a,,b").unwrap_err(),
        texts("a, a").unwrap_err(),
        addresses("192.0.2.7,web").unwrap_err(),
        tags("team").unwrap_err(),
        tags("a=1,a=2").unwrap_err(),
        path("healthz").unwrap_err(),
        hostname("192.0.2.7").unwrap_err(),
        extra(&"x".repeat(257)).unwrap_err(),
    ];
    insta::assert_snapshot!(faults.join("\n"), @r#"
    "yes" is not known: write true or false, or remove it
    "random" is not known: write round-robin, least-connections, source-ip or source-ip-port, or remove it
    "fast" is not a duration from 1s to 24h: write one such as 90s, 5m or 1h
    "0" is not a number of connections: write 1 or more
    "101" is not a number from 1 to 100
    "http" is not a number from 1 to 65535
    " x" is not a text of 1 to 256 bytes without surrounding blanks: correct or remove it
    "" is not a text of 1 to 256 bytes without surrounding blanks: correct or remove it
    duplicate entry "a": write it once
    "web" is not an IP address: write one such as 192.0.2.7
    "team" is not a tag: write one such as team=shop
    duplicate key "a": write it once
    "healthz" is not a path: write one such as /healthz, without blanks
    "192.0.2.7" is not a DNS name: write one such as shop.example.com, in lower case
    is longer than 256 bytes
    "#);
}

#[test]
fn names_of_go_controllers_are_refused() {
    let why = "this name is reserved for former cloud controller managers (kube_service_..., a<uid>): write one such as shop-web";
    for bad in [
        "kube_service_prod_shop_web",
        "Kube_Service_prod_shop_web",
        "a7c1ff02e0c8b4c6e9c39b1b1a0d0c00",
        "A7C1FF02E0C8B4C6E9C39B1B1A0D0C00",
    ] {
        assert_eq!(chosen_name(bad), Err(why.to_owned()), "{bad}");
        assert_eq!(name(bad).as_deref(), Ok(bad), "the operator's template may produce the name");
    }
    for good in [
        "kube-service_prod",
        "my_kube_service_prod_shop_web",
        "a7c1ff02e0c8b4c6e9c39b1b1a0d0c0",
        "a7c1ff02e0c8b4c6e9c39b1b1a0d0c001",
        "a7c1ff02e0c8b4c6e9c39b1b1a0d0c0g",
        "b7c1ff02e0c8b4c6e9c39b1b1a0d0c00",
    ] {
        assert_eq!(chosen_name(good).as_deref(), Ok(good));
    }
}

#[test]
fn hostnames_are_valid_for_status() {
    for good in ["shop.example.com", "a", "1a.b-2.example"] {
        assert_eq!(hostname(good).as_deref(), Ok(good));
    }
    let long = [&"x".repeat(64), ".example.com"].concat();
    for bad in
        ["", "Shop.example.com", "shop.example.com.", "-a.example.com", "a..b", "*.example.com", "::1", &long]
    {
        assert!(hostname(bad).is_err(), "{bad}");
    }
}

#[test]
fn addresses_are_canonical_and_unique() {
    let read = addresses("2001:db8:0::7 , 192.0.2.7").unwrap();
    assert_eq!(joined(&read), "2001:db8::7,192.0.2.7");
    assert!(addresses("2001:db8:0::7,2001:db8::7").is_err());
}

fn joined<T: ToString>(entries: &[T]) -> String {
    entries.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn tagged(tags: &BTreeMap<String, String>) -> String {
    tags.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

fn printed<T: Word + PartialEq>(value: &T) -> String {
    let of_value = T::WORDS.iter().find(|(_, one)| one == value);
    of_value.map(|(word, _)| (*word).to_owned()).unwrap_or_default()
}

/// Prints a parsed value, parses the text again, and expects the same value.
fn again<T: PartialEq + fmt::Debug>(
    text: &str,
    read: impl Fn(&str) -> Result<T, Fault>,
    print: impl Fn(&T) -> String,
) -> Result<(), TestCaseError> {
    if let Ok(value) = read(text) {
        prop_assert_eq!(read(&print(&value)), Ok(value));
    }
    Ok(())
}

fn all(text: &str) -> Result<(), TestCaseError> {
    again(text, word::<Switch>, printed)?;
    again(text, word::<IpMode>, printed)?;
    again(text, duration, ToString::to_string)?;
    again(text, connections, ToString::to_string)?;
    again(text, probes, ToString::to_string)?;
    again(text, port, ToString::to_string)?;
    again(text, self::text, Clone::clone)?;
    again(text, extra, Clone::clone)?;
    again(text, texts, |it| joined(it))?;
    again(text, addresses, |it| joined(it))?;
    again(text, tags, tagged)?;
    again(text, path, Clone::clone)?;
    again(text, hostname, Clone::clone)
}

proptest! {
    #[test]
    fn parsed_values_print_and_parse_again(
        text in "(true|VIP|[0-9]{1,6}[smh]?|/?[a-c.=,/ -]{0,12}|[0-9]{1,3}(\\.[0-9]{1,3}){3}(, ::[0-9a-f]{1,4})?)"
    ) {
        all(&text)?;
    }

    #[test]
    fn any_text_is_parsed_without_panic(text in any::<String>()) {
        all(&text)?;
    }
}

#[test]
fn long_lists_are_refused_before_they_are_read() {
    let entries = |count: usize| (0..count).map(|n| format!("c-{n}")).collect::<Vec<_>>().join(",");
    assert_eq!(texts(&entries(500)).map(|all| all.len()), Ok(500));
    assert_eq!(texts(&entries(501)), Err("501 entries exceed the limit of 500: use fewer".to_owned()));
    let pairs = |count: usize| (0..count).map(|n| format!("k-{n}=v")).collect::<Vec<_>>().join(",");
    assert_eq!(tags(&pairs(500)).map(|all| all.len()), Ok(500));
    assert_eq!(tags(&pairs(501)), Err("501 entries exceed the limit of 500: use fewer".to_owned()));
    assert_eq!(certificates(&entries(100)).map(|all| all.len()), Ok(100));
    let error = certificates(&entries(101));
    assert_eq!(error, Err("101 certificates exceed the limit of 100: use fewer".to_owned()));
}
