use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};

use super::*;
use crate::testing::{AUDIENCE, ISSUER, TokenKey, claims, jwks};

const WHO: &str = "kube-system:cloud-node-controller";

fn changed(field: &str, value: Value) -> Value {
    let mut claims = claims(WHO);
    claims[field] = value;
    claims
}

fn without(field: &str) -> Value {
    let mut claims = claims(WHO);
    claims.as_object_mut().expect("an object").remove(field);
    claims
}

fn set(keys: &[&TokenKey]) -> KeySet {
    KeySet::parse(ISSUER, &jwks(keys)).expect("keys")
}

#[test]
fn projected_tokens_of_all_key_types_are_accepted() {
    let (elliptic, longer, rsa) = (TokenKey::elliptic("e"), TokenKey::elliptic_384("l"), TokenKey::rsa("r"));
    let keys = set(&[&elliptic, &longer, &rsa]);
    for key in [&elliptic, &longer, &rsa] {
        let verified = verify(&key.token(WHO), &keys, AUDIENCE).expect("good");
        assert_eq!(verified.account.to_string(), format!("system:serviceaccount:{WHO}"));
        assert!(verified.lasts > Duration::from_secs(590) && verified.lasts <= Duration::from_secs(600));
    }
    let one = elliptic.sign(&changed("aud", json!(AUDIENCE)));
    assert!(verify(&one, &keys, AUDIENCE).is_ok(), "an audience that is not a list");
}

#[test]
fn tokens_with_wrong_claims_are_refused() {
    let key = TokenKey::elliptic("a");
    let keys = set(&[&key]);
    let now = get_current_timestamp();
    let other = |audience: &str| TokenError::Audience(audience.to_owned());
    let shared = || TokenError::Shared(AUDIENCE.to_owned());
    let issuer = || TokenError::Issuer(ISSUER.to_owned());
    for (name, claims, wanted) in [
        ("expired", changed("exp", json!(now - LEEWAY - 2)), TokenError::Expired),
        ("no expiration", without("exp"), TokenError::Malformed),
        ("an expiration that is not a number", changed("exp", json!("never")), TokenError::Malformed),
        ("not yet", changed("nbf", json!(now + LEEWAY + 60)), TokenError::Early),
        ("another issuer", changed("iss", json!("https://evil.example")), issuer()),
        (
            "an issuer that begins with the expected one",
            changed("iss", json!(format!("{ISSUER}.evil"))),
            issuer(),
        ),
        ("no issuer", without("iss"), TokenError::Malformed),
        ("another cluster's adapter", changed("aud", json!(["cloudadapter.c2"])), other(AUDIENCE)),
        ("the API server's", changed("aud", json!([ISSUER])), other(AUDIENCE)),
        ("also the API server's", changed("aud", json!([AUDIENCE, ISSUER])), shared()),
        ("no audience claim", without("aud"), TokenError::Malformed),
        ("no audience", changed("aud", json!([])), other(AUDIENCE)),
        ("no subject", without("sub"), TokenError::Malformed),
        ("a user", changed("sub", json!("admin")), TokenError::Subject),
        ("a node", changed("sub", json!("system:node:a")), TokenError::Subject),
    ] {
        assert_eq!(verify(&key.sign(&claims), &keys, AUDIENCE), Err(wanted), "{name}");
    }
}

#[test]
fn a_small_clock_difference_is_tolerated() {
    let key = TokenKey::elliptic("a");
    let keys = set(&[&key]);
    let now = get_current_timestamp();
    for claims in [changed("exp", json!(now - LEEWAY + 5)), changed("nbf", json!(now + LEEWAY - 5))] {
        assert!(verify(&key.sign(&claims), &keys, AUDIENCE).is_ok(), "{claims}");
    }
}

#[test]
fn only_the_clusters_own_signature_counts() {
    let (key, rsa, stranger) = (TokenKey::elliptic("a"), TokenKey::rsa("r"), TokenKey::elliptic("a"));
    let keys = set(&[&key, &rsa]);
    let header =
        |algorithm, id: Option<&str>| Header { kid: id.map(str::to_owned), ..Header::new(algorithm) };
    let good = key.token(WHO);
    let (_, body) = good.split_once('.').expect("dots");
    // {"alg":"none","kid":"a"}
    let unsigned = format!("eyJhbGciOiJub25lIiwia2lkIjoiYSJ9.{body}");
    let public = key.jwk()["x"].as_str().expect("a point").to_owned();
    let secret = |id| {
        let key = EncodingKey::from_secret(public.as_bytes());
        encode(&header(Algorithm::HS256, Some(id)), &claims(WHO), &key).expect("signs")
    };
    let mut bent = good.clone();
    let last = if bent.pop() == Some('A') { 'Q' } else { 'A' };
    bent.push(last);
    let critical = Header { crit: Some(vec!["b64".to_owned()]), ..header(Algorithm::ES256, Some("a")) };
    for (name, token, wanted) in [
        ("no signature, declared", unsigned, TokenError::Malformed),
        ("a shared secret made from the public key", secret("a"), TokenError::Algorithm),
        ("the same for the RSA key", secret("r"), TokenError::Algorithm),
        ("another key with the same ID", stranger.token(WHO), TokenError::Signature),
        ("an unpublished key", TokenKey::elliptic("z").token(WHO), TokenError::UnknownKey),
        ("no key ID", key.sign_as(&header(Algorithm::ES256, None), &claims(WHO)), TokenError::Malformed),
        (
            "one key's ID and another's signature",
            key.sign_as(&header(Algorithm::ES256, Some("r")), &claims(WHO)),
            TokenError::Algorithm,
        ),
        ("an unsupported critical extension", key.sign_as(&critical, &claims(WHO)), TokenError::Malformed),
        ("a changed signature", bent, TokenError::Signature),
        ("nothing", String::new(), TokenError::Malformed),
        ("no token", "a.b.c".to_owned(), TokenError::Malformed),
        ("too many parts", format!("{good}.x"), TokenError::Malformed),
    ] {
        assert_eq!(verify(&token, &keys, AUDIENCE), Err(wanted), "{name}");
    }
    let taken = format!(
        "{}.{}",
        good.split('.').next().expect("a header"),
        rsa.token(WHO).split_once('.').expect("dots").1
    );
    assert_eq!(verify(&taken, &keys, AUDIENCE), Err(TokenError::Signature), "parts of two tokens");
}

#[test]
fn refusals_contain_no_token_content() {
    let key = TokenKey::elliptic("a");
    let keys = set(&[&key]);
    let claims = changed("aud", json!(["s3cret-audience"]));
    let token = key.sign(&claims);
    let reported = verify(&token, &keys, AUDIENCE).expect_err("refused").to_string();
    assert!(!reported.contains("s3cret") && !reported.contains(&token), "{reported}");
}

#[test]
fn unsupported_keys_are_skipped_and_empty_sets_refused() {
    let key = TokenKey::elliptic("a");
    let mut encryption = TokenKey::elliptic("b").jwk();
    encryption["use"] = json!("enc");
    let mut other = TokenKey::rsa("c").jwk();
    other["alg"] = json!("RS512");
    let secret = json!({ "kty": "oct", "kid": "d", "alg": "HS256", "k": "c2VjcmV0" });
    let odd = json!({ "kty": "new", "kid": "e" });
    let nameless = {
        let mut jwk = TokenKey::elliptic("f").jwk();
        jwk.as_object_mut().expect("an object").remove("kid");
        jwk
    };
    let others = [encryption, other, secret, odd, nameless];
    let all: Vec<Value> = others.iter().cloned().chain([key.jwk()]).collect();
    let keys = KeySet::parse(ISSUER, &json!({ "keys": all }).to_string()).expect("a valid one");
    for (id, known) in [("a", true), ("b", false), ("c", false), ("d", false), ("e", false), ("f", false)] {
        assert_eq!(keys.has(id), known, "{id}");
    }
    let none = KeySet::parse(ISSUER, &json!({ "keys": others }).to_string());
    assert!(matches!(none, Err(KeySetError::Empty)), "{none:?}");
    assert!(matches!(KeySet::parse(ISSUER, "[]"), Err(KeySetError::Malformed(_))));
}
