//! Progress on standard error for anything that takes over a second; silent where nobody looks.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use stalloc_jobs::Watch;

use crate::output;

/// A bar that shows itself only once its work has taken a while, and only on a terminal.
pub struct DelayedBar {
    bar: Option<ProgressBar>,
    started: std::time::Instant,
    label: String,
}

impl DelayedBar {
    /// Work that is called `label`.
    pub fn new(label: impl Into<String>) -> Self {
        DelayedBar { bar: None, started: std::time::Instant::now(), label: label.into() }
    }

    /// `done` of `total` units are done; a `total` of 0: nobody knows how many there are.
    pub fn update(&mut self, done: u64, total: u64) {
        if self.bar.is_none() && self.started.elapsed() < Duration::from_millis(500) {
            return;
        }
        let label = &self.label;
        let bar = self.bar.get_or_insert_with(|| {
            let bar = ProgressBar::new(total).with_message(label.clone());
            match ProgressStyle::with_template("{msg} [{bar:30}] {percent}% {elapsed}") {
                Ok(style) => bar.with_style(style.progress_chars("=> ")),
                Err(_) => bar,
            }
        });
        bar.set_length(total);
        bar.set_position(done);
    }
}

impl Drop for DelayedBar {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// The terminal, as what jobs tell of their work: a bar for each piece of it, a line for each note.
pub struct Terminal {
    /// Said before the name of each piece of work.
    prefix: String,
    work: Option<(String, DelayedBar)>,
}

impl Terminal {
    /// Nothing is under way.
    pub fn new() -> Self {
        Terminal { prefix: String::new(), work: None }
    }

    /// As [`Terminal::new`], for work on `name`.
    pub fn on(name: &str) -> Self {
        Terminal { prefix: format!("{name}: "), work: None }
    }
}

impl Watch for Terminal {
    fn progress(&mut self, work: &str, done: u64, total: u64) {
        let (_, bar) = match self.work.take() {
            Some((label, bar)) if label == work => self.work.insert((label, bar)),
            _ => self.work.insert((work.to_owned(), DelayedBar::new(format!("{}{work}", self.prefix)))),
        };
        bar.update(done, total);
    }

    fn note(&mut self, text: &str) {
        self.work = None;
        output::say(text);
    }
}

/// A line that says what goes on for minutes, and lines above it that stay: on a terminal alone the first one, everywhere the others.
pub struct Spinner(ProgressBar);

impl Spinner {
    /// Nothing is shown yet.
    pub fn new() -> Self {
        let bar = ProgressBar::new_spinner();
        bar.set_style(
            ProgressStyle::with_template("{spinner} {msg} {elapsed}")
                .unwrap_or_else(|_| ProgressStyle::default_spinner()),
        );
        Spinner(bar)
    }

    /// Says what goes on until it is dropped, by itself.
    pub fn steady(text: &'static str) -> Self {
        let spinner = Self::new();
        spinner.0.set_message(text);
        spinner.0.enable_steady_tick(Duration::from_millis(100));
        spinner
    }

    /// Says what goes on.
    pub fn update(&mut self, text: &str) {
        self.0.set_message(text.to_owned());
        self.0.tick();
    }

    /// Prints a line on standard error that stays.
    pub fn line(&mut self, text: &str) {
        self.0.suspend(|| output::say(text));
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
