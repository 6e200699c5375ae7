//! The pictures as a PNG, with a font of our own so that it looks the same on every machine.

use std::sync::Arc;

use resvg::tiny_skia::{Pixmap, PixmapPaint, PremultipliedColorU8, Transform};
use resvg::usvg::{Options, Tree, fontdb};

use super::{SCALE, SIZE, height, map, shown};
use crate::Error;
use crate::device::Analysis;

/// Draws an SVG made by [`super::svg`] from the same analysis.
///
/// # Errors
/// If it cannot be drawn or compressed.
pub fn png(svg: &str, analysis: &Analysis<'_>) -> Result<Vec<u8>, Error> {
    let mut fonts = fontdb::Database::new();
    fonts.load_font_data(epaint_default_fonts::UBUNTU_LIGHT.to_vec());
    let family = fonts.faces().next().and_then(|face| face.families.first()).map(|(name, _)| name.clone());
    if let Some(family) = family {
        fonts.set_sans_serif_family(family);
    }
    let options = Options { fontdb: Arc::new(fonts), ..Options::default() };
    let tree = Tree::from_str(svg, &options).map_err(|error| Error::Draw(error.to_string()))?;
    let no_room = || Error::Draw("no memory for the picture".into());
    let scale = SCALE as f32;
    let mut picture = Pixmap::new(SIZE.0 as u32 * SCALE, SIZE.1 as u32 * SCALE).ok_or_else(no_room)?;
    resvg::render(&tree, Transform::from_scale(scale, scale), &mut picture.as_mut());
    // The renderer leaves images out: the maps go on top.
    let top = height(analysis);
    for (mapped, frame) in shown(analysis) {
        let image = map::paint(analysis.trace, mapped, top, frame.width as u32 * SCALE, frame.height as u32 * SCALE);
        let mut pixels = Pixmap::new(image.width, image.height).ok_or_else(no_room)?;
        for (pixel, rgb) in pixels.pixels_mut().iter_mut().zip(image.rgb.chunks_exact(3)) {
            if let Some(colour) = PremultipliedColorU8::from_rgba(rgb[0], rgb[1], rgb[2], 255) {
                *pixel = colour;
            }
        }
        let (x, y) = ((frame.left * f64::from(SCALE)) as i32, (frame.top * f64::from(SCALE)) as i32);
        picture.draw_pixmap(x, y, pixels.as_ref(), &PixmapPaint::default(), Transform::identity(), None);
    }
    picture.encode_png().map_err(|error| Error::Draw(error.to_string()))
}
