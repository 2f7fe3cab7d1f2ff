"""The named hashes inside the JVM. Spark has none of them, so a few lines of Java are compiled by the compiler that
Spark brings along, and given to its workers as a jar."""

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from tenure.jobs.pipelines.hashing import HASHES, OFFSET_BASIS, PRIME

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register_hashes"]

STEPS = {
    "fnv1": f"hash = (hash * {PRIME}) ^ (each & 0xFF);",
    "fnv1a": f"hash = (hash ^ (each & 0xFF)) * {PRIME};",
}
SOURCE = """
package tenure;
public class {name} implements org.apache.spark.sql.api.java.UDF1 {{
    public Object call(Object key) {{
        byte[] bytes = (byte[]) key;
        int hash = 0x{basis:X};
        for (int i = 0; i < bytes.length; i++) {{ byte each = bytes[i]; {step} }}
        return Long.valueOf(hash & 0xFFFFFFFFL);
    }}
}}
"""


def register_hashes(spark: "SparkSession", folder: Path) -> None:
    """Make `tenure_fnv1` and `tenure_fnv1a` known to this session: functions of bytes. Their jar is kept there."""
    jar = folder / "tenure-hashes.jar"
    if not jar.exists():
        _write_jar(spark, jar)
    spark.sql(f"ADD JAR '{jar}'")
    assert spark._jvm is not None
    loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()
    long = spark._jvm.org.apache.spark.sql.types.DataTypes.LongType
    for name in HASHES:
        function = loader.loadClass(f"tenure.{name.title()}").newInstance()
        spark._jsparkSession.udf().register(f"tenure_{name}", function, long)


def _write_jar(spark: "SparkSession", jar: Path) -> None:
    jvm = spark._jvm
    assert jvm is not None
    with zipfile.ZipFile(jar, "w") as archive:
        for name, step in STEPS.items():
            compiler = jvm.org.codehaus.janino.SimpleCompiler()
            compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
            compiler.cook(SOURCE.format(name=name.title(), basis=OFFSET_BASIS, step=step))
            for class_name, code in dict(compiler.getBytecodes()).items():
                archive.writestr(class_name.replace(".", "/") + ".class", bytes(code))
