//! Paths of a drawing, in whole units: it stretches to whatever room it has.

/// Units across. More than a screen has pixels, so that a unit is never seen.
pub const WIDTH: i64 = 4000;
/// Units down.
pub const HEIGHT: i64 = 1000;

/// A path being written.
#[derive(Debug, Default)]
pub struct Path(String);

impl Path {
    /// Begins a new stroke.
    pub fn begin(&mut self, (x, y): (i64, i64)) {
        self.0.push('M');
        self.pair(x, y);
    }

    /// A straight line to a point.
    pub fn to(&mut self, (x, y): (i64, i64)) {
        self.0.push('L');
        self.pair(x, y);
    }

    /// Back to where the stroke began.
    pub fn close(&mut self) {
        self.0.push('Z');
    }

    fn pair(&mut self, x: i64, y: i64) {
        self.0.push_str(&x.to_string());
        self.0.push(' ');
        self.0.push_str(&y.to_string());
    }

    /// What was written.
    pub fn text(self) -> String {
        self.0
    }
}

/// A line through points; a single one is a dash, so that it is seen.
pub fn stroke(path: &mut Path, points: &[(i64, i64)]) {
    /// Half a dash's length.
    const DASH: i64 = 6;
    match points {
        [] => {}
        [(x, y)] => {
            path.begin((x - DASH, *y));
            path.to((x + DASH, *y));
        }
        [first, rest @ ..] => {
            path.begin(*first);
            for point in rest {
                path.to(*point);
            }
        }
    }
}

/// Units across of a share of the width. What lies a little outside stays there, so that lines leave by the edge.
pub fn units_x(share: f64) -> i64 {
    units(share, WIDTH)
}

/// Units down of a share of the height from the top.
pub fn units_y(share: f64) -> i64 {
    units(share, HEIGHT)
}

fn units(share: f64, whole: i64) -> i64 {
    #[expect(clippy::cast_possible_truncation, reason = "clamped")]
    let units = (share.clamp(-2.0, 3.0) * whole as f64).round() as i64;
    units
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stroke_goes_through_its_points_and_one_point_is_a_dash() {
        let mut path = Path::default();
        stroke(&mut path, &[]);
        stroke(&mut path, &[(0, 5), (10, 6)]);
        stroke(&mut path, &[(100, 7)]);
        assert_eq!(path.text(), "M0 5L10 6M94 7L106 7");
    }

    #[test]
    fn units_are_bounded_whatever_the_share() {
        for share in [f64::NAN, f64::INFINITY, -1e300, 0.5] {
            assert!(units_x(share).abs() <= 3 * WIDTH, "{share}");
        }
    }
}
