"""An independent fit on every rank, each with data of its own."""

import os

os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import keras
import numpy

from shoal.integrations.keras import ShoalCallback

rank = int(os.environ["SHOAL_INDEX"])
random = numpy.random.default_rng(rank)
x = random.normal(size=(96, 4)).astype("float32")
y = (x @ [1.0, -2.0, 0.5, rank])[:, None].astype("float32")

keras.utils.set_random_seed(7)
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
model.compile(optimizer=keras.optimizers.SGD(0.05), loss="mse", metrics=["mae"])
callback = ShoalCallback(log_every=2)
history = model.fit(x, y, batch_size=16, epochs=3, validation_split=1 / 3, verbose=0, callbacks=[callback])
model.evaluate(x, y, verbose=0, callbacks=[callback])
print("history", {name: [round(value, 6) for value in values] for name, values in history.history.items()})
