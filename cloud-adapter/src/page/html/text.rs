//! Escaping of texts, and formatting of numbers.

use std::fmt::{self, Write as _};

/// An untrusted text, escaped for HTML text and quoted attributes. A visible mark replaces invisible characters and characters that change
/// the text direction.
pub(super) struct Escaped<'a>(pub(super) &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|letter| match letter {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '"' => f.write_str("&quot;"),
            '\'' => f.write_str("&#39;"),
            '\n' | '\r' | '\t' => f.write_char(' '),
            // The control characters of Unicode's bidirectional algorithm.
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                f.write_char('\u{fffd}')
            }
            hidden if hidden.is_control() => f.write_char('\u{fffd}'),
            harmless => f.write_char(harmless),
        })
    }
}

pub(super) struct Seconds(pub(super) f64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.max(0.0);
        let (hours, minutes, rest) =
            ((seconds / 3600.0).floor(), (seconds % 3600.0 / 60.0).floor(), (seconds % 60.0).floor());
        match seconds {
            few if few < 10.0 => write!(f, "{} s", Number(few)),
            some if some < 60.0 => write!(f, "{rest} s"),
            more if more < 3600.0 && rest < 1.0 => write!(f, "{minutes} min"),
            more if more < 3600.0 => write!(f, "{minutes} min {rest} s"),
            _ if minutes < 1.0 => write!(f, "{hours} h"),
            _ => write!(f, "{hours} h {minutes} min"),
        }
    }
}

/// Formats a number with one decimal if it is not whole, and with two decimals if it is small.
pub(super) struct Number(pub(super) f64);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps = if self.0.abs() < 1.0 { 100.0 } else { 10.0 };
        write!(f, "{}", (self.0 * steps).round() / steps)
    }
}

/// Formats a count with separated thousands.
pub(super) struct Count(pub(super) u64);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        digits.chars().enumerate().try_for_each(|(index, digit)| {
            if index > 0 && (digits.len() - index).is_multiple_of(3) {
                f.write_char(',')?;
            }
            f.write_char(digit)
        })
    }
}
