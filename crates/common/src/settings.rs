//! Every variable of the environment that the package reads, in one table: `stalloc --settings` and the docs' page of them are printed from
//! it, all Rust reads them through it, and a test holds the names in Python's sources against it. What tests and scripts alone read, they name.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Who sets a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetBy {
    /// Whoever runs a job.
    User,
    /// One of our processes, for those that it starts.
    Stalloc,
    /// Tests, benches and scripts of the project.
    Project,
}

/// One variable.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// Who sets it.
    pub set_by: SetBy,
    /// What it says, and what holds without it.
    pub says: &'static str,
    /// The page of the docs that says more, and the place in it; empty: none.
    pub page: &'static str,
}

impl Setting {
    /// What it is set to, if that is text and not empty.
    pub fn text(&self) -> Option<String> {
        std::env::var(self.name).ok().filter(|text| !text.is_empty())
    }

    /// The path that it is set to.
    pub fn path(&self) -> Option<PathBuf> {
        std::env::var_os(self.name).filter(|path| !path.is_empty()).map(PathBuf::from)
    }

    /// The number that it is set to; none: it is not set, or to what is no number.
    pub fn number<T: FromStr>(&self) -> Option<T> {
        self.text()?.trim().parse().ok()
    }

    /// Whether it is set to `value`.
    pub fn is(&self, value: &str) -> bool {
        std::env::var_os(self.name).is_some_and(|set| set == value)
    }
}

impl AsRef<OsStr> for Setting {
    fn as_ref(&self) -> &OsStr {
        self.name.as_ref()
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(self.name)
    }
}

macro_rules! settings {
    ($($set_by:ident { $($name:ident = $variable:literal, $page:literal: $says:literal;)* })*) => {
        $($(
            #[doc = $says]
            pub const $name: Setting = Setting { name: $variable, set_by: SetBy::$set_by, says: $says, page: $page };
        )*)*

        /// All of them.
        pub const ALL: &[Setting] = &[$($($name),*),*];
    };
}

settings! {
    User {
        MODE = "STALLOC_MODE", "serving.md#the-environment-alone": "`Auto` (serve and learn), `Alloc` (follow plans), `Trace` (record) or `Torch` (PyTorch's allocator, a line of figures per step); without it nothing happens";
        FOLDER = "STALLOC_MODEL_INFO_PATH", "serving.md#the-environment-alone": "a folder: traces go to its `trace/`, plans lie in it or in its `output/plan/`; `Auto` needs none";
        LOG_LEVEL = "STALLOC_LOG_LEVEL", "serving.md#the-environment-alone": "0 to 3; 3 is silence; 1 without it";
        OUT_OF_MEMORY = "STALLOC_OUT_OF_MEMORY", "report.md#when-memory-runs-out": "the folder of reports when memory runs out, `stalloc-out-of-memory` by default; where it is named, they have call stacks; 0: none";
        TIGHT = "STALLOC_TIGHT", "dynamic.md#one-arena-one-rule": "1: remap rather than hold much more than tensors use";
        SOLID = "STALLOC_SOLID", "special-memory.md#one-allocation": "1, or a size such as `2GiB`: the arena is one allocation, so much larger than the plan needs";
        DYNAMIC = "STALLOC_DYNAMIC", "serving.md#the-environment-alone": "0: what has no planned offset goes to PyTorch's allocator";
        PINNED = "STALLOC_PINNED", "special-memory.md#pinned-memory": "0: page-locked memory of the host is left to PyTorch";
        STATIC_FALLBACK = "STALLOC_STATIC_FALLBACK", "serving.md#the-environment-alone": "of the STAlloc artifact; always 1 here";
        TRACE_FAST_MODE = "STALLOC_TRACE_FAST_MODE", "serving.md#the-environment-alone": "of the STAlloc artifact; always 1 here";
        LIB_PATH = "STALLOC_LIB_PATH", "serving.md#the-environment-alone": "of the STAlloc artifact; not needed here";
        READ_GIB = "STALLOC_READ_GIB", "../bench/results/reading.md": "memory that a reader of recordings may take, 4 by default";
        PYTHON_PACKAGE = "STALLOC_PYTHON_PACKAGE", "install.md": "the folder of the Python package, if not the one next to the command";
        DRYRUN_GPU = "STALLOC_DRYRUN_GPU", "dry-run.md": "the stand-in GPU, a preset's name or a description";
        DRYRUN_DEVICES = "STALLOC_DRYRUN_DEVICES", "dry-run.md": "how many of them, 1 by default";
        DRYRUN_TOTAL_MIB = "STALLOC_DRYRUN_TOTAL_MIB", "dry-run.md": "its capacity in MiB";
        DRYRUN_CONTEXT_MIB = "STALLOC_DRYRUN_CONTEXT_MIB", "dry-run.md": "what the context takes of it, in MiB";
        DRYRUN_LOG = "STALLOC_DRYRUN_LOG", "dry-run.md": "a file or `stderr`, for functions that are not imitated";
        DRYRUN_VALUES = "STALLOC_DRYRUN_VALUES", "dry-run.md#what-a-program-reads-back": "0: small integers are not computed";
        DRYRUN_LIB = "STALLOC_DRYRUN_LIB", "dry-run.md": "the stand-in's library, if not the one next to the command";
        DRYRUN_CUDNN = "STALLOC_DRYRUN_CUDNN", "dry-run.md": "`imitated`: the installed cuDNN is not asked for its workspaces";
        DRYRUN_CLOCK = "STALLOC_DRYRUN_CLOCK", "dry-run.md": "`real`: the host's time is that of a real clock";
        DRYRUN_AMPLE = "STALLOC_DRYRUN_AMPLE", "dry-run.md": "1: memory does not run out; programs still see the capacity";
        DRYRUN_GUESS = "STALLOC_DRYRUN_GUESS", "dry-run.md": "`none`: unknown masks choose nothing";
        DRYRUN_NO_EXPORT = "STALLOC_DRYRUN_NO_EXPORT", "dry-run.md": "1: memory cannot be exported to other processes";
        DRYRUN_LATE_EVENTS = "STALLOC_DRYRUN_LATE_EVENTS", "dry-run.md#the-order-between-streams": "a seed: events complete late, by chance, and the order of all use of memory is checked";
    }
    Stalloc {
        LAUNCH = "STALLOC_LAUNCH", "": "the file of a launch's options";
        TRACE_DIR = "STALLOC_TRACE_DIR", "": "the folder that a recorded process writes to";
        TRACE_LAUNCH = "STALLOC_TRACE_LAUNCH", "": "what tells the traces of one launch from others in the folder";
        TRACE_ALONE = "STALLOC_TRACE_ALONE", "": "set: one rank runs without the others";
        TRIAL_NOTES = "STALLOC_TRIAL_NOTES", "": "the folder for what a trial says of itself";
        FIT = "STALLOC_FIT", "": "the levers that the job runs with, and their plan";
        LEVERS = "STALLOC_LEVERS", "": "the levers of a trial";
        LEVERS_SHARED = "STALLOC_LEVERS_SHARED", "": "where trials meet that share their start";
        PLANNED = "STALLOC_PLANNED", "": "the folder whose plans are up to date";
    }
    Project {
        HOST_PAGES = "STALLOC_HOST_PAGES", "": "set: memory of the host is served in pages that can be remapped";
        FAULT = "STALLOC_FAULT", "": "`FUNCTION:N`: its Nth call and all later ones panic";
        TUNE = "STALLOC_TUNE_NAME", "": "another value for the tuned number NAME";
    }
}

/// A line for each variable that is named like ours and is none: a name that was mistyped changes nothing, and nobody would say so.
pub fn unknown(names: impl Iterator<Item = OsString>) -> Vec<String> {
    let mut lines: Vec<String> = names.filter_map(|name| mistyped(name.to_str()?)).collect();
    lines.sort_unstable();
    lines
}

fn mistyped(name: &str) -> Option<String> {
    let is_ours =
        |known: &Setting| known.name == name || (known.name == TUNE.name && name.starts_with("STALLOC_TUNE_"));
    if !name.starts_with("STALLOC_") || ALL.iter().any(is_ours) {
        return None;
    }
    let meant = ALL.iter().filter(|known| known.set_by == SetBy::User);
    let (meant, far) =
        meant.map(|known| (known, strsim::osa_distance(known.name, name))).min_by_key(|(_, far)| *far)?;
    (far <= 2).then(|| format!("{name} is no setting and changes nothing: is {meant} meant? (stalloc --settings)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_was_mistyped_gets_a_line_and_others_none() {
        let lines = |names: &[&str]| unknown(names.iter().map(OsString::from));
        assert_eq!(
            lines(&["STALLOC_TIHGT", "PATH", "STALLOC_TIGHT", "STALLOC_TUNE_KEPT"]),
            ["STALLOC_TIHGT is no setting and changes nothing: is STALLOC_TIGHT meant? (stalloc --settings)"]
        );
        assert_eq!(lines(&["STALLOC_MODEL_INFO_PTH", "STALLOC_DRYRUN_GPUS"]).len(), 2);
        // Of a program's own.
        assert!(lines(&["STALLOC_EXPERIMENT_7", "MY_STALLOC_MODE"]).is_empty());
    }

    #[test]
    fn each_name_stands_once_and_what_a_user_sets_has_a_page() {
        for (index, one) in ALL.iter().enumerate() {
            assert!(ALL[..index].iter().all(|other| other.name != one.name), "{one}");
            assert!(one.set_by != SetBy::User || !one.page.is_empty(), "{one}");
        }
    }
}
