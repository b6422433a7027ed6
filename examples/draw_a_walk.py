"""Draw what gpuscan has scanned, on a wgpu device that your program has made.

A random walk is the running sum of its steps. The program scans the steps on its own device, as a program with pygfx
or rendercanvas has one, and its fragment shader reads the walk where it is: nothing is copied to the CPU. It draws to a
texture, one column of pixels for each step.

Run it: python examples/draw_a_walk.py
"""

from __future__ import annotations

import numpy as np
import wgpu

import gpuscan as gs

WIDTH, HEIGHT = 512, 256

SHADER = """
@group(0) @binding(0) var<storage, read> walk: array<i32>;

@vertex
fn corner(@builtin(vertex_index) index: u32) -> @builtin(position) vec4<f32> {
    // One triangle that covers the whole texture.
    return vec4<f32>(f32(index & 1u) * 4.0 - 1.0, f32(index >> 1u) * 4.0 - 1.0, 0.0, 1.0);
}

@fragment
fn color(@builtin(position) at: vec4<f32>) -> @location(0) vec4<f32> {
    let height = 256 - i32(at.y);
    return select(vec4<f32>(1.0, 1.0, 1.0, 1.0), vec4<f32>(0.0, 0.0, 1.0, 1.0), height <= walk[i32(at.x)] + 128);
}
"""


def main() -> None:
    """Draw the walk, and check every pixel."""
    adapter = wgpu.gpu.request_adapter_sync(power_preference="high-performance")
    gpu = adapter.request_device_sync()  # made by the program, without a word about gpuscan

    device = gs.Device(gpu)
    steps = np.random.default_rng(0).choice(np.array([-4, 4], np.int32), WIDTH)
    walk = gs.scan(device.asarray(steps))

    texture = gpu.create_texture(
        size=(WIDTH, HEIGHT, 1),
        format=wgpu.TextureFormat.rgba8unorm,
        usage=wgpu.TextureUsage.RENDER_ATTACHMENT | wgpu.TextureUsage.COPY_SRC,
    )
    module = gpu.create_shader_module(code=SHADER)
    pipeline = gpu.create_render_pipeline(
        layout="auto",
        vertex={"module": module, "entry_point": "corner"},
        primitive={"topology": wgpu.PrimitiveTopology.triangle_list},
        fragment={"module": module, "entry_point": "color", "targets": [{"format": texture.format}]},
    )
    place = {"buffer": walk.buffer, "offset": walk.offset, "size": walk.nbytes}
    group = gpu.create_bind_group(layout=pipeline.get_bind_group_layout(0), entries=[{"binding": 0, "resource": place}])
    encoder = gpu.create_command_encoder()
    view = {"view": texture.create_view(), "load_op": "clear", "store_op": "store"}
    render_pass = encoder.begin_render_pass(color_attachments=[view])
    render_pass.set_pipeline(pipeline)
    render_pass.set_bind_group(0, group)
    render_pass.draw(3)
    render_pass.end()
    gpu.queue.submit([encoder.finish()])

    read = gpu.queue.read_texture({"texture": texture}, {"bytes_per_row": 4 * WIDTH}, (WIDTH, HEIGHT, 1))
    pixels = np.frombuffer(read, np.uint8).reshape(HEIGHT, WIDTH, 4)
    heights = HEIGHT - np.arange(HEIGHT)[:, None]
    below = heights <= np.cumsum(steps) + HEIGHT // 2
    wanted = np.where(below[..., None], np.uint8([0, 0, 255, 255]), np.uint8([255, 255, 255, 255]))
    assert np.array_equal(pixels, wanted), "every column is as high as the walk"
    print(f"a walk of {WIDTH} steps drawn by {device.capabilities.summary}")


if __name__ == "__main__":
    main()
