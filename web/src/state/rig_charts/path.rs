//! Paths of a drawing, in whole units. The drawing stretches to the available space.

/// The width in units: more than a screen has pixels, so that rounding is invisible.
pub const WIDTH: i64 = 4000;
/// The height in units.
pub const HEIGHT: i64 = 1000;

/// A path under construction.
#[derive(Debug, Default)]
pub struct Path(String);

impl Path {
    /// Begins a new stroke.
    pub fn begin(&mut self, (x, y): (i64, i64)) {
        self.0.push('M');
        self.pair(x, y);
    }

    /// Draws a straight line to a point.
    pub fn to(&mut self, (x, y): (i64, i64)) {
        self.0.push('L');
        self.pair(x, y);
    }

    /// Closes the stroke.
    pub fn close(&mut self) {
        self.0.push('Z');
    }

    fn pair(&mut self, x: i64, y: i64) {
        self.0.push_str(&x.to_string());
        self.0.push(' ');
        self.0.push_str(&y.to_string());
    }

    /// The text of the path.
    pub fn text(self) -> String {
        self.0
    }
}

/// Draws a line through points; a single point becomes a visible dash.
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

/// Converts a share of the width to units. Positions slightly outside remain outside, so that lines leave at the edge.
pub fn units_x(share: f64) -> i64 {
    units(share, WIDTH)
}

/// Converts a share of the height from the top to units.
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
