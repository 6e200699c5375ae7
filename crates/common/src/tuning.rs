//! Tuned numbers, in one table per crate: each is a constant, unless the crate is built with its feature `ablation`. Then it
//! is read once from the environment (`STALLOC_TUNE_NAME=VALUE`), so that a program of measurements can leave a mechanism
//! out or change a number without touching the code.

/// A function for each number, and a list of all of them, `TUNED`: name and value.
///
/// ```
/// stalloc_common::tuned! {
///     /// How far away is nearby.
///     nearby: u32 = 64;
/// }
/// assert_eq!((nearby(), TUNED), (64, &[("nearby", "64")][..]));
/// ```
#[macro_export]
macro_rules! tuned {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $value:expr;)*) => {
        $(
            $(#[$doc])*
            #[cfg(not(feature = "ablation"))]
            #[inline(always)]
            pub const fn $name() -> $type {
                $value
            }

            $(#[$doc])*
            #[cfg(feature = "ablation")]
            pub fn $name() -> $type {
                static VALUE: std::sync::OnceLock<$type> = std::sync::OnceLock::new();
                *VALUE.get_or_init(|| $crate::tuning::or_environment(stringify!($name), $value))
            }
        )*

        /// The table: names and values.
        pub const TUNED: &[(&str, &str)] = &[$((stringify!($name), stringify!($value))),*];
    };
}

/// A number from the environment, or else as it is. One that is no number is as good as none.
pub fn or_environment<T: std::str::FromStr>(name: &str, value: T) -> T {
    let set = std::env::var(format!("STALLOC_TUNE_{}", name.to_uppercase())).ok();
    set.and_then(|set| set.parse().ok()).unwrap_or(value)
}
