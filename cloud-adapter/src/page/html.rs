//! The HTML page: one document with inline style, without scripts or external resources. This module is pure.
//!
//! - `text`: escaping and formatting of numbers.
//! - `table`: tables that become lists on narrow screens.
//! - `sparkline`: small charts.
//! - `sections`: the content, in order.

mod sections;
mod sparkline;
mod table;
#[cfg(test)]
mod tests;
mod text;

use std::{fmt::Write as _, sync::LazyLock};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use sha2::{Digest as _, Sha256};
use telemetry::report::AdapterStatus;

use self::{sections::sections, text::Escaped};

const STYLE: &str = include_str!("html/style.css");
/// The interval of automatic reloads, in seconds.
const REFRESH: u32 = 5;

/// The content security policy, which allows only the inline style and the empty icon.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let style = STANDARD.encode(Sha256::digest(STYLE));
    format!(
        "default-src 'none'; style-src 'sha256-{style}'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
});

pub(super) fn policy() -> &'static str {
    &POLICY
}

pub(super) fn document(status: &AdapterStatus) -> String {
    let name = Escaped(&status.adapter);
    let mut page = String::with_capacity(32 * 1024);
    // Writing to a string never fails.
    let written = write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"refresh\" content=\"{REFRESH}\">\n\
         <link rel=\"icon\" href=\"data:,\">\n<title>{name}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         {sections}\
         <footer><p>Rendered from memory at each request; reloaded every {REFRESH} s. \
         <a href=\"status.json\">The same as JSON</a></p></footer>\n</body>\n</html>\n",
        sections = sections(status),
    );
    debug_assert!(written.is_ok());
    page
}
