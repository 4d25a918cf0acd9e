//! Logging to standard error, as the settings say (`FERROCE_LOG`).

use std::sync::Once;

use ferroce::config::{Key, Settings};
use tracing_subscriber::EnvFilter;

/// Starts logging at the first call. Where the settings are wrong, and that is what is to be said,
/// the variable counts alone.
pub(crate) fn start(settings: Option<&Settings>) {
    static START: Once = Once::new();
    START.call_once(|| {
        let filter = match settings {
            Some(settings) => settings.log.clone(),
            None => std::env::var(Key::Log.variable()).unwrap_or_else(|_| Settings::default().log),
        };
        // Of a filter that cannot be parsed, what can be counts. There is no other subscriber.
        let _ = tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::builder().parse_lossy(filter))
            .with_writer(std::io::stderr)
            .with_ansi(false)
            .try_init();
    });
}

/// Says why a call is refused, and evaluates to the errno.
macro_rules! refuse {
    ($errno:ident, $($why:tt)+) => {{
        tracing::warn!($($why)+);
        $crate::errno::Errno(libc::$errno)
    }};
}
pub(crate) use refuse;
