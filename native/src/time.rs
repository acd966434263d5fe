//! Times in UTC, to the second, the milli- or the microsecond.

const DAYS: [i64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/// Tell whether a text has the form of such a time.
pub fn has_form(text: &[u8]) -> bool {
    const FORM: &[u8] = b"0000-00-00T00:00:00";
    let Some((head, tail)) = text.split_at_checked(FORM.len()) else {
        return false;
    };
    let is_head = head.iter().zip(FORM).all(|(got, form)| {
        if *form == b'0' {
            got.is_ascii_digit()
        } else {
            got == form
        }
    });
    let digits = match tail.len() {
        1 => &tail[..0],
        5 | 8 if tail[0] == b'.' => &tail[1..tail.len() - 1],
        _ => return false,
    };
    is_head && tail.ends_with(b"Z") && digits.iter().all(u8::is_ascii_digit)
}

/// Return a time of that form as microseconds since the epoch, `None` where no calendar has it.
pub fn micros(text: &[u8]) -> Option<i64> {
    if !has_form(text) {
        return None;
    }
    let number = |from: usize, to: usize| {
        text[from..to]
            .iter()
            .fold(0_i64, |sum, digit| sum * 10 + i64::from(digit - b'0'))
    };
    let (year, month, day) = (number(0, 4), number(5, 7), number(8, 10));
    let (hour, minute, second) = (number(11, 13), number(14, 16), number(17, 19));
    let is_leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    let last = DAYS.get(usize::try_from(month - 1).ok()?)? + i64::from(is_leap && month == 2);
    if year == 0 || !(1..=last).contains(&day) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let fraction = match text.len() {
        24 => number(20, 23) * 1_000,
        27 => number(20, 26),
        _ => 0,
    };
    let days = days_since_epoch(year, month, day);
    Some((((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000_000 + fraction)
}

/// Count days by Howard Hinnant's `days_from_civil`: years begin in March, so that the leap day is the last.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}
