//! Who hears of work while it is done.

/// Told how far a piece of work is, and what the user should know meanwhile.
pub trait Watch {
    /// `done` of `total` units of `work` are done; a `total` of 0: nobody knows how many there are.
    fn progress(&mut self, work: &str, done: u64, total: u64);

    /// A sentence that is neither a result nor an error.
    fn note(&mut self, text: &str);
}

/// Keeps the sentences, for whoever asks later.
#[derive(Debug, Default)]
pub struct KeptSentences(pub Vec<String>);

impl Watch for KeptSentences {
    fn progress(&mut self, _work: &str, _done: u64, _total: u64) {}

    fn note(&mut self, text: &str) {
        self.0.push(text.to_owned());
    }
}

/// Hears nothing.
pub struct Silent;

impl Watch for Silent {
    fn progress(&mut self, _work: &str, _done: u64, _total: u64) {}

    fn note(&mut self, _text: &str) {}
}
