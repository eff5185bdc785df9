"""Writes the files in this folder, by Keras 3 itself: keras, tensorflow-cpu, tf2onnx, torch.

    python tests/model/formats/keras/make.py tensorflow
    python tests/model/formats/keras/make.py torch

Each network is exported by `model.export(..., format="onnx")`; beside it are two images, channels
last as Keras has them, and what Keras predicts of them. Keras 3.15 with TensorFlow loses the
constants of a Normalization layer (its file has inputs that nobody can give), and exports no
grouped convolution: those come from the PyTorch backend alone.
"""

import os
import sys
from pathlib import Path

BACKEND = os.environ["KERAS_BACKEND"] = sys.argv[1]

import keras
import numpy as np
from keras import layers

FOLDER = Path(__file__).parent
numbers = np.random.default_rng(1)


def grey():
    """Reshaped where others are turned around."""
    return keras.Sequential(
        [
            keras.Input((12, 12, 1)),
            layers.ZeroPadding2D(2),
            layers.Conv2D(4, 5, activation="hard_silu"),
            layers.MaxPooling2D(2, padding="same"),
            layers.LeakyReLU(negative_slope=0.1),
            layers.BatchNormalization(),
            layers.Dropout(0.3),
            layers.Flatten(),
            layers.Dense(3, activation="softmax"),
        ]
    )


def mobile():
    return keras.Sequential(
        [
            keras.Input((16, 16, 3)),
            layers.Rescaling(1 / 127.5, offset=-1),
            layers.Conv2D(8, 3, strides=2, padding="same", use_bias=False),
            layers.BatchNormalization(),
            layers.ReLU(max_value=6),
            layers.DepthwiseConv2D(3, padding="same", strides=2),
            layers.BatchNormalization(),
            layers.Activation("relu6"),
            layers.SeparableConv2D(6, 3, padding="same", activation="swish"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(5),
            layers.Softmax(),
        ]
    )


def branches():
    image = keras.Input((8, 8, 3))
    first = layers.Conv2D(4, 3, padding="same", activation="relu")(image)
    second = layers.BatchNormalization()(layers.Conv2D(4, 3, padding="same")(first))
    x = layers.ReLU()(layers.Add()([first, second]))
    x = layers.Concatenate()([x, layers.Conv2D(2, 1, activation="leaky_relu")(x)])
    x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
    return keras.Model(image, layers.Dense(4, activation="softmax")(layers.Flatten()(x)))


def colours():
    """Flattened as they come, channels last."""
    return keras.Sequential(
        [
            keras.Input((6, 6, 3)),
            layers.Flatten(),
            layers.Dense(8, activation="tanh"),
            layers.Dense(4),
        ]
    )


def rows():
    return keras.Sequential(
        [
            keras.Input((64,)),
            layers.Dense(8, activation="sigmoid"),
            layers.Dense(4, activation="softmax"),
        ]
    )


def normalised():
    normalisation = layers.Normalization(axis=-1)
    normalisation.adapt(numbers.uniform(0, 1, (50, 10, 10, 4)).astype(np.float32))
    return keras.Sequential(
        [
            keras.Input((10, 10, 4)),
            normalisation,
            layers.ZeroPadding2D(((0, 1), (0, 1))),
            layers.Conv2D(8, 3, strides=2, groups=2, activation="tanh"),
            layers.Conv2D(4, 2, dilation_rate=2, activation="sigmoid"),
            layers.GlobalAveragePooling2D(keepdims=True),
            layers.Conv2D(3, 1),
            layers.Flatten(),
        ]
    )


def main():
    keras.utils.set_random_seed(1)
    made = (grey, mobile, branches, colours, rows)
    for build in (*made, normalised) if BACKEND == "torch" else made:
        model = build()
        for weight in model.weights:
            if "moving" in weight.path or "bias" in weight.path:
                weight.assign(numbers.uniform(0.5, 1.5, weight.shape))
        x = numbers.uniform(0, 1, (2, *model.input_shape[1:])).astype(np.float32)
        expected = model.predict(x, verbose=0)
        path = FOLDER / f"{build.__name__}-{BACKEND}.onnx"
        model.export(path, format="onnx", verbose=False)
        np.savez(path.with_suffix(".npz"), x=x, y=expected)


if __name__ == "__main__":
    main()
