//! The page on a terminal, until somebody has seen enough. Whatever ends it, the terminal is as
//! it was before.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::PATIENCE;
use super::sample::Sample;
use super::view::{State, draw};

/// How soon a signal is noticed.
const LOOK: Duration = Duration::from_millis(100);

/// Gives the terminal back. Panics do so by the hook of `ratatui`.
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        // A terminal that has gone need not be restored.
        let _ = ratatui::try_restore();
    }
}

/// Shows the fabric in `dir` until a key or a signal ends it.
///
/// # Errors
/// If it is none of this user's, or the terminal fails.
pub fn run(dir: &Path, interval: Duration) -> Result<()> {
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, ended.clone()).context("cannot handle signals")?;
    }
    let patience = PATIENCE.min(interval);
    let now = Sample::take(dir, patience)?;
    let mut state = State { fabric: dir.display().to_string(), interval, before: None, now };
    let _restore = Restore;
    let mut terminal = ratatui::try_init().context("cannot use the terminal")?;
    loop {
        let next = Instant::now() + interval;
        loop {
            terminal.draw(|frame| draw(frame, &state)).context("cannot draw")?;
            let left = next.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            if is_quit(left.min(LOOK))? || ended.load(Ordering::Relaxed) {
                return Ok(());
            }
        }
        state.update(Sample::take(dir, patience)?);
    }
}

/// Waits for a key, at most so long; whether it says to quit. Ctrl-C comes as a key too.
fn is_quit(timeout: Duration) -> Result<bool> {
    let event = match event::poll(timeout) {
        Ok(true) => event::read(),
        Ok(false) => return Ok(false),
        Err(error) => Err(error),
    };
    match event {
        Ok(Event::Key(key)) if key.kind == KeyEventKind::Press => {
            let control = key.modifiers.contains(KeyModifiers::CONTROL);
            Ok(match key.code {
                KeyCode::Char('q') | KeyCode::Esc => true,
                KeyCode::Char('c') => control,
                _ => false,
            })
        }
        Ok(_) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
        Err(error) => Err(error).context("cannot read the terminal"),
    }
}
