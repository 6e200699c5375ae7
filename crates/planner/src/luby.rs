//! Lengths of restarts.

/// The sequence 1 1 2 1 1 2 4 1 1 2 1 1 2 4 8 ... from 1 (Luby, Sinclair and Zuckerman 1993): within a logarithm of
/// the best restarts there are, whatever the distribution of the time to success.
pub(crate) fn luby(mut k: u64) -> u64 {
    loop {
        let bits = u64::BITS - k.leading_zeros();
        if k == (1 << bits) - 1 {
            return 1 << (bits - 1);
        }
        k -= (1 << (bits - 1)) - 1;
    }
}

#[cfg(test)]
mod tests;
