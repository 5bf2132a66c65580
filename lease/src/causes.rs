//! Errors of kube's client, in words that can be shown.

use std::{error::Error, iter::successors};

use kube::client::AuthError;

/// An error with its causes, each once, and without secrets: kube's own texts stop at the first.
#[must_use]
pub fn causes(error: &(dyn Error + 'static)) -> String {
    let all = || successors(Some(error), |error| (*error).source());
    if let Some(words) = all().find_map(without_secrets) {
        return words;
    }
    all().skip(1).fold(error.to_string(), |text, cause| {
        let words = cause.to_string();
        if text.contains(&words) { text } else { format!("{text}: {words}") }
    })
}

/// Words of our own for what would tell secrets: kube's show what a credential plugin is given and prints, and a proxy with its password.
#[must_use]
pub fn without_secrets(error: &(dyn Error + 'static)) -> Option<String> {
    if let Some(
        kube::Error::ProxyProtocolUnsupported { proxy_url }
        | kube::Error::ProxyProtocolDisabled { proxy_url, .. },
    ) = error.downcast_ref()
    {
        let (scheme, host) = (proxy_url.scheme_str().unwrap_or("http"), proxy_url.host().unwrap_or_default());
        return Some(format!("proxy-url {scheme}://{host}: proxies are not supported: remove it"));
    }
    let auth: &AuthError = error.downcast_ref()?;
    if let AuthError::AuthExecRun { out, .. } = auth {
        return Some(format!("the credential plugin of the kubeconfig failed: {}", out.status));
    }
    let words = if let AuthError::AuthExecParse(_) | AuthError::ParseTokenKey(_) = auth {
        "the credential plugin of the kubeconfig printed no ExecCredential"
    } else if let AuthError::MalformedTokenExpirationDate(_) = auth {
        "the credentials of the kubeconfig expire at what is no time"
    } else if let AuthError::AuthExec(_) = auth {
        "the auth-provider of the kubeconfig gives no credentials: use a credential plugin"
    } else {
        return None;
    };
    Some(words.to_owned())
}
