# PostgreSQL alters no table in the transaction that has just written rows which refer to it, so this is one of its own.

from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('nodes', '0003_hardware'),
    ]

    operations = [
        migrations.RemoveField(
            model_name='noderow',
            name='inventory',
        ),
    ]
