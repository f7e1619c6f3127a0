//! The owners that the load uses, with names like those of machines and pods: `node-0007/pod-7f9c4d`. Each name encodes a
//! number that can be read back.
//!
//! The lane is the node; the pod is a number that the lane does not repeat. The server's listing contains only names, so the
//! audit has to recognise an owner from the text alone.

/// Bits of a pod number: a lane repeats a pod after 2^24 names. Six hexadecimal digits.
const POD_BITS: u32 = 24;
/// Odd, so that multiplying is a permutation of the pods: consecutive requests get unlike names.
const POD_STRIDE: u32 = 0x9e_3779;
/// The inverse of the stride, modulo the number of pods.
const POD_STRIDE_INVERSE: u32 = inverse(POD_STRIDE);
const POD_MASK: u32 = (1 << POD_BITS) - 1;

/// The inverse of an odd number modulo 2^32, by Newton's method: the first guess has three correct bits, and each step
/// doubles them.
const fn inverse(odd: u32) -> u32 {
    let (mut found, mut step) = (odd, 0);
    while step < 4 {
        found = found.wrapping_mul(2u32.wrapping_sub(odd.wrapping_mul(found)));
        step += 1;
    }
    found
}

/// An owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Who(u64);

impl Who {
    /// The owner that this lane names at its `count`th time; the seed makes the owners of two runs differ.
    pub fn new(lane: usize, count: u32, seed: u32) -> Self {
        let pod = count.wrapping_mul(POD_STRIDE).wrapping_add(seed) & POD_MASK;
        Self((lane as u64) << POD_BITS | u64::from(pod))
    }

    /// The lane, and the count of [`Who::new`], for a run with this seed.
    pub fn parts(self, seed: u32) -> (u64, u32) {
        let pod = self.0 as u32 & POD_MASK;
        (self.0 >> POD_BITS, pod.wrapping_sub(seed).wrapping_mul(POD_STRIDE_INVERSE) & POD_MASK)
    }

    /// The number of the owner, below 2^62.
    pub fn number(self) -> u64 {
        self.0
    }

    /// The owner for a number from [`Who::number`].
    pub fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// Appends the name. Written by hand: at a million names a second, a formatter would take a tenth of the client's time.
    pub fn push(self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"node-");
        let lane = self.0 >> POD_BITS;
        if lane < 10_000 {
            for power in [1_000, 100, 10, 1] {
                out.push(b'0' + (lane / power % 10) as u8);
            }
        } else {
            push_decimal(out, lane);
        }
        out.extend_from_slice(b"/pod-");
        for shift in (0..POD_BITS / 4).rev() {
            out.push(b"0123456789abcdef"[(self.0 >> (shift * 4)) as usize & 15]);
        }
    }

    /// The name as a string.
    pub fn name(self) -> String {
        let mut name = Vec::new();
        self.push(&mut name);
        String::from_utf8_lossy(&name).into_owned()
    }

    /// Reads a name; none if no lane would use it.
    pub fn read(name: &str) -> Option<Self> {
        let (lane, pod) = name.strip_prefix("node-")?.split_once("/pod-")?;
        let lane: u64 = lane.parse().ok()?;
        let pod = u64::from_str_radix(pod, 16).ok().filter(|pod| pod >> POD_BITS == 0)?;
        let who = Self(lane.checked_mul(1 << POD_BITS)? | pod);
        (who.name() == name).then_some(who)
    }
}

/// Appends a number in decimal digits.
pub fn push_decimal(out: &mut Vec<u8>, number: u64) {
    let mut digits = [0; 20];
    let (mut at, mut rest) = (digits.len(), number);
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_never_repeat_and_are_read_back() {
        let mut seen = std::collections::HashSet::new();
        for lane in [0, 7, 1_234, 10_007, 999_999] {
            for count in 0..1_000 {
                let who = Who::new(lane, count, 42);
                assert!(seen.insert(who.name()));
                assert_eq!(Who::read(&who.name()), Some(who));
                assert_eq!(who.parts(42), (lane as u64, count));
            }
        }
    }

    #[test]
    fn what_no_lane_would_say_is_nobody() {
        for name in
            ["web/0", "node-7/pod-000001", "node-0007/pod-0000001", "node-0007/pod-00000G", "node--007/pod-000001"]
        {
            assert_eq!(Who::read(name), None, "{name}");
        }
    }
}
